package decision

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

var parameterPattern = regexp.MustCompile(`^[a-z0-9.-]+$`)

// Parameters checks what a policy gave for an approval: an object of texts whose keys can be
// annotation names. Anything else is policy.malformed, and the approval does not stand.
func Parameters(value any) (map[string]string, *MachineryError) {
	if value == nil {
		return nil, nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, parameterError("parameters", value, "it is not an object")
	}
	if len(object) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		text, ok := object[key].(string)
		if !ok {
			return nil, parameterError(fmt.Sprintf("parameters[%q]", key), object[key], "it is not a text")
		}
		if !parameterPattern.MatchString(key) {
			return nil, parameterError(fmt.Sprintf("parameters[%q]", key), text, "its key does not match "+parameterPattern.String())
		}
		out[key] = text
	}
	return out, nil
}

func parameterError(what string, value any, fault string) *MachineryError {
	return &MachineryError{Code: CodePolicyMalformed, Message: malformed(what, value, fault).Message}
}
