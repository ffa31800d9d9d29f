package install_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// right is one thing that an account may or may not do: "update pods/status in default".
type right struct {
	verb, group, resource, namespace string
}

// parse reads "verb group/resource[/subresource] namespace"; the core group is "core", a cluster-wide one is "-".
func parse(t *testing.T, text string) right {
	t.Helper()
	words := strings.Fields(text)
	require.Len(t, words, 3, text)
	group, resource, ok := strings.Cut(words[1], "/")
	require.True(t, ok, text)
	r := right{verb: words[0], group: group, resource: resource, namespace: words[2]}
	if r.group == "core" {
		r.group = ""
	}
	if r.namespace == "-" {
		r.namespace = ""
	}
	return r
}

// may says whether one of our accounts has the right.
func may(t *testing.T, c client.Client, account string, r right) bool {
	t.Helper()
	return allowed(t, c, authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}, r)
}

func allowed(t *testing.T, c client.Client, who authorizationv1.SubjectAccessReviewSpec, r right) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(r.resource, "/")
	who.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub, Namespace: r.namespace,
	}
	review := &authorizationv1.SubjectAccessReview{Spec: who}
	require.NoError(t, c.Create(t.Context(), review))
	return review.Status.Allowed
}

func TestAccountsMayDoWhatTheirWorkNeedsAndNothingThatHurts(t *testing.T) {
	_, c := cluster(t)
	for _, account := range []struct {
		name     string
		may, not []string
	}{{
		name: "assent-operator",
		may: []string{
			"watch assent.dev/listatefulsets default", "create assent.dev/revisions default", "create assent.dev/podindices default",
			"create assent.dev/operations default", "create assent.dev/statefulpods default", "create core/pods default",
			"delete core/pods default", "create core/persistentvolumeclaims default", "update assent.dev/statefulpods/status default",
			"update assent.dev/operations/status default", "update assent.dev/statefulpods/finalizers default",
			"create coordination.k8s.io/leases assent-system", "update coordination.k8s.io/leases assent-system",
		},
		not: []string{
			// A claim is data: this version never deletes one.
			"delete core/persistentvolumeclaims default", "deletecollection core/persistentvolumeclaims default",
			"deletecollection core/pods default", "create core/pods/eviction default", "create core/pods/exec default",
			// What the user wants is the user's word.
			"create assent.dev/listatefulsets default", "update assent.dev/listatefulsets default", "delete assent.dev/listatefulsets default",
			"get core/secrets default", "list core/secrets -", "get core/configmaps assent-system", "update core/configmaps assent-system",
			"update core/nodes -", "delete core/nodes -", "delete core/namespaces -", "update apps/deployments assent-system",
			"update coordination.k8s.io/leases default", "update coordination.k8s.io/leases kube-system",
			"create rbac.authorization.k8s.io/clusterroles -", "update apiextensions.k8s.io/customresourcedefinitions -",
			"create core/serviceaccounts/token assent-system",
		},
	}, {
		name: "assent-acm",
		may: []string{
			"list core/pods -", "watch core/pods -", "list core/nodes -", "watch core/nodes -",
			"create coordination.k8s.io/leases assent-system", "get coordination.k8s.io/leases assent-system",
			"update coordination.k8s.io/leases assent-system",
		},
		not: []string{
			// The ACM answers; it touches nothing.
			"create core/pods default", "update core/pods default", "patch core/pods default", "delete core/pods default",
			"create core/pods/exec default", "create core/pods/eviction default", "update core/nodes -", "get core/secrets default",
			"get core/configmaps default", "update core/configmaps assent-system", "list assent.dev/listatefulsets -",
			"update assent.dev/operations/status default", "update assent.dev/statefulpods default",
			"get coordination.k8s.io/leases default", "update coordination.k8s.io/leases kube-system",
			"create core/serviceaccounts/token assent-system",
		},
	}} {
		for _, text := range account.may {
			require.True(t, may(t, c, account.name, parse(t, text)), "%s may: %s", account.name, text)
		}
		for _, text := range account.not {
			require.False(t, may(t, c, account.name, parse(t, text)), "%s may not: %s", account.name, text)
		}
	}
}

func TestPeopleEditSetsAndOnlyReadWhatTheOperatorMakesOfThem(t *testing.T) {
	_, c := cluster(t)
	require.Eventually(t, func() bool { return userMay(t, c, "edit", "create assent.dev/listatefulsets default") }, aggregated, tick)
	require.Eventually(t, func() bool { return userMay(t, c, "view", "list assent.dev/operations default") }, aggregated, tick)
	for _, kind := range []string{"operations", "podindices", "revisions", "statefulpods"} {
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			require.False(t, userMay(t, c, "admin", verb+" assent.dev/"+kind+" default"), "%s %s", verb, kind)
		}
	}
	require.False(t, userMay(t, c, "view", "update assent.dev/listatefulsets default"))
	require.False(t, userMay(t, c, "edit", "update assent.dev/listatefulsets/status default"))
}

const (
	// aggregated is how long the controller manager may take to add our rights to the cluster's own roles.
	aggregated = 20 * time.Second
	tick       = 50 * time.Millisecond
)

// userMay says whether a person with one of the cluster's own roles in namespace default may do something there.
func userMay(t *testing.T, c client.Client, role, what string) bool {
	t.Helper()
	person := "person-with-" + role
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: person, Namespace: "default"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: person}},
	}
	if err := c.Create(t.Context(), binding); client.IgnoreAlreadyExists(err) != nil {
		require.NoError(t, err)
	}
	return allowed(t, c, authorizationv1.SubjectAccessReviewSpec{User: person}, parse(t, what))
}
