package operation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/question"
)

// A Pod that the API server refuses waits for a person, and must say so where people look: in the Operation that is
// stored, not only in one that would be stored if something else changed.
func TestAPodThatIsRefusedIsShownInTheStoredOperation(t *testing.T) {
	const why = `the API server refuses: spec.containers[0].volumeMounts[0].name: Not found: "nov"`
	w := app().set("db", 1, "r1")
	op := w.order("db", v1alpha1.ScaleOut, 1, "r1", 0)
	w.approve("d1", op, "db-0").step()
	w.step()
	require.Equal(t, "Granted", w.operation(op).Status.State)
	s := w.identity("db-0")
	s.Status.Message = why
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionPodAccepted, Status: metav1.ConditionFalse, Reason: "Refused", Message: why,
	})
	w.Now = w.Now.Add(2 * time.Second)
	w.step()
	require.Equal(t, question.CodePodRefused, w.operation(op).Status.Reason)
	require.Equal(t, "db-0: "+why, w.operation(op).Status.Message)

	meta.RemoveStatusCondition(&w.identity("db-0").Status.Conditions, v1alpha1.ConditionPodAccepted)
	w.identity("db-0").Status.Message = ""
	w.Now = w.Now.Add(2 * time.Second)
	w.step()
	require.Empty(t, w.operation(op).Status.Reason)
	require.NotContains(t, w.operation(op).Status.Message, "refuses")
}
