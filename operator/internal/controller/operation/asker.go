package operation

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"assent.dev/assent/operator/internal/plan/question"
)

// Asker asks an ACM. No method blocks; what comes back waits until it is taken, and the application's name on Changed
// tells that something did. At most one question of an application is under way: a further one replaces it, and the
// answer to the replaced one is dropped.
type Asker interface {
	// Ask sends a question. Its end, with an answer or a failure, comes by Answer.
	Ask(q question.Question)
	// Answer takes the end of the last question, once.
	Answer(application types.NamespacedName) (question.Answer, bool)
	// Follow listens for nudges about an application, from the named ACM, until Unfollow. Repeating it changes nothing.
	Follow(application types.NamespacedName, policy, acm string)
	// Unfollow stops listening and forgets the application.
	Unfollow(application types.NamespacedName)
	// Nudged takes whether "ask again" has come since it was last taken.
	Nudged(application types.NamespacedName) bool
	// Changed names applications for which Answer or Nudged has something.
	Changed() <-chan event.TypedGenericEvent[types.NamespacedName]
}
