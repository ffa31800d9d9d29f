// Package render turns a container of a pod spec into a command line and an environment, as the kubelet would, and
// then puts real directories in the place of mount paths.
package render

import "strings"

// Expand replaces $(NAME) by lookup(NAME). A name that lookup does not know stays as written, $$ is a literal dollar
// sign, and a dollar sign before anything else stands for itself
// (kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables).
func Expand(text string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		next := strings.IndexByte(text[i:], '$')
		if next < 0 || i+next+1 == len(text) {
			out.WriteString(text[i:])
			break
		}
		out.WriteString(text[i : i+next])
		i += next
		written, used := reference(text[i:], lookup)
		out.WriteString(written)
		i += used
	}
	return out.String()
}

// reference reads what a dollar sign at the start of text stands for, and how many bytes it takes. text is at least
// two bytes long.
func reference(text string, lookup func(string) (string, bool)) (string, int) {
	switch text[1] {
	case '$':
		return "$", 2
	case '(':
		end := strings.IndexByte(text, ')')
		if end < 0 {
			return "$(", 2
		}
		if value, ok := lookup(text[2:end]); ok {
			return value, end + 1
		}
		return text[:end+1], end + 1
	default:
		return text[:2], 2
	}
}
