package podindex

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"assent.dev/assent/operator/api/v1alpha1"
)

const (
	// keepFor is how long a complete Operation is kept for people to look at.
	keepFor = time.Hour
	// keepPerType is how many complete ones of a type are kept at most.
	keepPerType = 10
)

// expired lists complete Operations that were kept long enough, and when the next one is. One that the ledger claims,
// may still claim, or that a pod's unfinished grant names is kept whatever its age.
func (l *ledger) expired() ([]v1alpha1.Operation, time.Time) {
	granted := l.granted()
	byType := map[v1alpha1.OperationType][]v1alpha1.Operation{}
	for i := range l.in.Operations {
		op := l.in.Operations[i]
		if op.Ended() && op.DeletionTimestamp.IsZero() && !granted[op.Name] && l.forgotten(op.Name) {
			byType[op.Spec.Type] = append(byType[op.Spec.Type], op)
		}
	}
	var expired []v1alpha1.Operation
	var next time.Time
	for _, ops := range byType {
		slices.SortFunc(ops, func(a, b v1alpha1.Operation) int {
			if c := completedAt(&a).Compare(completedAt(&b)); c != 0 {
				return c
			}
			return byName(a, b)
		})
		for i := range ops {
			end := completedAt(&ops[i]).Add(keepFor)
			if i < len(ops)-keepPerType || !end.After(l.in.Now) {
				expired = append(expired, ops[i])
			} else if next.IsZero() || end.Before(next) {
				next = end
			}
		}
	}
	slices.SortFunc(expired, byName)
	return expired, next
}

func completedAt(op *v1alpha1.Operation) time.Time {
	if op.Status.CompletedAt != nil {
		return op.Status.CompletedAt.Time
	}
	return op.CreationTimestamp.Time
}

// forgotten says whether the ledger as read had claimed the Operation and dropped it: its number was given out and it
// is not listed. A ledger older than the claim does not know the number yet.
func (l *ledger) forgotten(name string) bool {
	sequence, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 64)
	if err != nil || sequence > l.in.Index.Status.Sequence {
		return false
	}
	return !slices.ContainsFunc(l.in.Index.Status.Claims, func(c v1alpha1.Claim) bool { return c.Name == name })
}

// granted holds the Operations that an unfinished grant names.
func (l *ledger) granted() map[string]bool {
	named := map[string]bool{}
	for i := range l.in.Pods {
		p := &l.in.Pods[i]
		if g := p.Spec.Grant; g != nil && g.Decision != p.Status.Finished {
			named[g.Operation] = true
		}
	}
	return named
}
