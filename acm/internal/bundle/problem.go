package bundle

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Problem is one thing that is wrong with a bundle, at a place a person can open.
type Problem struct {
	// File is relative to the bundle directory ("redis/policy.rego"); empty when the whole bundle is meant.
	File string
	// Line counts from 1; 0 when the whole file is meant.
	Line    int
	Message string
}

// String gives "file:line: message".
func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Message
	case p.Line == 0:
		return p.File + ": " + p.Message
	default:
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
	}
}

// Problems is every fault that one step of the gate found, in order of file and line. It is never empty.
type Problems []Problem

// Error joins the problems with "; ", the first five at most.
func (ps Problems) Error() string {
	const most = 5
	texts := make([]string, 0, most+1)
	for i, p := range ps {
		if i == most {
			texts = append(texts, fmt.Sprintf("and %d more", len(ps)-most))
			break
		}
		texts = append(texts, p.String())
	}
	return strings.Join(texts, "; ")
}

// ProblemsOf gives the single faults in err: those of a Problems, or err itself as one.
func ProblemsOf(err error) Problems {
	if err == nil {
		return nil
	}
	var ps Problems
	if errors.As(err, &ps) {
		return ps
	}
	return Problems{{Message: err.Error()}}
}

func problemsIn(file, format string, args ...any) Problems {
	return Problems{{File: file, Message: fmt.Sprintf(format, args...)}}
}

func problemAt(loc *ast.Location, format string, args ...any) Problem {
	p := Problem{Message: fmt.Sprintf(format, args...)}
	if loc != nil {
		p.File, p.Line = loc.File, loc.Row
	}
	return p
}

// fromOPA keeps place and text of OPA's own errors and drops its error classes, which tell a policy author nothing.
func fromOPA(err error) Problems {
	var many ast.Errors
	if errors.As(err, &many) {
		ps := make(Problems, 0, len(many))
		for _, e := range many {
			ps = append(ps, problemAt(e.Location, "%s", describe(e)))
		}
		return ps.sorted()
	}
	var one *ast.Error
	if errors.As(err, &one) {
		return Problems{problemAt(one.Location, "%s", describe(one))}
	}
	return Problems{{Message: err.Error()}}
}

func describe(e *ast.Error) string {
	if e.Details == nil {
		return e.Message
	}
	lines := e.Details.Lines()
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return e.Message + " (" + strings.Join(lines, " ") + ")"
}

func (ps Problems) sorted() Problems {
	sort.SliceStable(ps, func(i, j int) bool {
		if ps[i].File != ps[j].File {
			return ps[i].File < ps[j].File
		}
		return ps[i].Line < ps[j].Line
	})
	return ps
}
