package podindex

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// completed is a block with n complete Operations of one type, a minute apart, the oldest first.
func completed(n int) *world {
	w := block("db", 0)
	for i := range n {
		c := v1alpha1.Claim{
			Name: v1alpha1.OperationName("db", 0, v1alpha1.Deployment, int64(i+1)), Type: v1alpha1.Deployment,
			Instances: []v1alpha1.ClaimedInstance{{Index: 0}},
		}
		w.Operations = append(w.Operations, ToOperation(w.Index, c))
		w.end(c.Name, v1alpha1.Succeeded)
		w.Operations[i].Status.CompletedAt = &metav1.Time{Time: noon.Add(time.Duration(i-n) * time.Minute)}
	}
	w.Index.Status.Sequence = int64(n)
	return w
}

func names(ops []v1alpha1.Operation) []string {
	list := []string{}
	for _, o := range ops {
		list = append(list, o.Name)
	}
	return list
}

func TestCompleteOperationsAreKeptAnHourAndTenATypeAtMost(t *testing.T) {
	w := completed(12)
	p := Make(w.Input)
	require.Equal(t, []string{"db-0-dep-1", "db-0-dep-2"}, names(p.Expired))
	require.Equal(t, noon.Add(50*time.Minute), p.LookAgain, "the third ended ten minutes ago")

	w.Now = noon.Add(55 * time.Minute)
	require.Len(t, Make(w.Input).Expired, 8)
}

func TestAnOperationThatTheLedgerMayStillClaimIsKept(t *testing.T) {
	w := completed(12)
	w.Index.Status.Sequence = 1 // a ledger from before the others were claimed
	require.Equal(t, []string{}, names(Make(w.Input).Expired), "only number 1 is known to be forgotten, and it is young")

	w = completed(12)
	w.Index.Status.Claims = []v1alpha1.Claim{{Name: "db-0-dep-1", Type: v1alpha1.Deployment, Instances: []v1alpha1.ClaimedInstance{{Index: 0}}}}
	require.Equal(t, []string{"db-0-dep-2"}, names(Make(w.Input).Expired))
}

func TestAnOperationThatAnUnfinishedGrantNamesIsKept(t *testing.T) {
	w := completed(12).pods("r1", 0)
	w.Pods[0].Spec.Grant = &v1alpha1.Grant{Operation: "db-0-dep-1", Decision: "d1"}
	require.Equal(t, []string{"db-0-dep-2"}, names(Make(w.Input).Expired))
	w.Pods[0].Status.Finished = "d1"
	require.Equal(t, []string{"db-0-dep-1", "db-0-dep-2"}, names(Make(w.Input).Expired))
}
