package localnode

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterRole is everything an agent may do, for those who do not want to give it an administrator's config.
func ClusterRole(name string) *rbacv1.ClusterRole {
	rule := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			rule("", []string{"nodes"}, "get", "create", "delete"),
			rule("", []string{"nodes/status"}, "patch"),
			rule("coordination.k8s.io", []string{"leases"}, "get", "create", "update"),
			rule("", []string{"pods"}, "get", "list", "watch", "delete"),
			rule("", []string{"pods/status"}, "patch"),
			rule("", []string{"configmaps", "secrets"}, "get"),
			rule("", []string{"serviceaccounts/token"}, "create"),
			rule("", []string{"events"}, "create", "patch"),
			rule("", []string{"persistentvolumeclaims"}, "get", "list", "watch"),
			rule("", []string{"persistentvolumes"}, "get", "list", "watch", "create", "delete"),
			rule("storage.k8s.io", []string{"storageclasses"}, "list", "watch", "create"),
		},
	}
}
