package statefulpod

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"assent.dev/assent/operator/api/v1alpha1"
)

func TestARefusedPodSaysSoAtOnceAndNoLongerOnceItIsTaken(t *testing.T) {
	l := identity().granted(v1alpha1.ScaleOut, "")
	l.Trouble = "the API server refuses: no volume nov"
	p := Make(l.Input)
	require.True(t, p.WriteStatus, "a person has to help: it is not waited with")
	require.True(t, meta.IsStatusConditionFalse(p.Status.Conditions, v1alpha1.ConditionPodAccepted))
	require.Equal(t, l.Trouble, p.Status.Message)

	l.Identity.Status, l.Trouble = p.Status, ""
	l.pod("u1", "r1")
	p = Make(l.Input)
	require.True(t, p.WriteStatus)
	require.Nil(t, meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPodAccepted))
}
