// Package volume puts the volumes of pods into directories of this machine.
//
// Data (configMap, secret, projected, downwardAPI) is written as the kubelet writes it; emptyDir is a directory of the
// pod; a claim is the directory its bound PersistentVolume names.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"assent.dev/assent/test/localnode/internal/render"
)

// Manager mounts volumes for the pods of one node.
type Manager struct {
	client kubernetes.Interface
	clock  clock.PassiveClock
	// pods is the folder with one folder a pod UID.
	pods string
	// hostPaths are the folders beneath which hostPath volumes and volumes of foreign PersistentVolumes may lie.
	hostPaths []string

	mu     sync.Mutex
	tokens map[string]heldToken
}

type heldToken struct {
	text  string
	renew time.Time
}

// New makes a manager that keeps pods' own files beneath pods and lets volumes lie beneath hostPaths.
func New(client kubernetes.Interface, c clock.PassiveClock, pods string, hostPaths []string) *Manager {
	return &Manager{client: client, clock: c, pods: pods, hostPaths: hostPaths, tokens: map[string]heldToken{}}
}

// ConfigMap reads a config map live. The error wraps the API's.
func (m *Manager) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	cm, err := m.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading config map %s: %w", name, err)
	}
	return cm, nil
}

// Secret reads a secret live. The error wraps the API's.
func (m *Manager) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	s, err := m.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading secret %s: %w", name, err)
	}
	return s, nil
}

// PodDir is the pod's own folder; Unmount removes it.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.pods, string(uid)) }

// Mount makes every volume of the pod and returns their directories by volume name. It may be called again; what is
// there stays. The error says which volume and why, in words for the pod's status.
func (m *Manager) Mount(ctx context.Context, pod *corev1.Pod, place render.Place) (map[string]string, error) {
	dirs := map[string]string{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		dir, err := m.mount(ctx, pod, place, v)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		dirs[v.Name] = dir
	}
	return dirs, nil
}

func (m *Manager) mount(ctx context.Context, pod *corev1.Pod, place render.Place, v *corev1.Volume) (string, error) {
	own := filepath.Join(m.PodDir(pod.UID), "volumes", v.Name)
	if files, ok, err := (collector{m, pod, place}).dataVolume(ctx, v); err != nil {
		return "", err
	} else if ok {
		return own, writeAll(own, files)
	}
	switch {
	case v.EmptyDir != nil:
		return own, makeDir(own)
	case v.PersistentVolumeClaim != nil:
		return m.claim(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		return m.claim(ctx, pod.Namespace, pod.Name+"-"+v.Name)
	case v.HostPath != nil:
		return v.HostPath.Path, m.hostPath(v.HostPath)
	}
	return "", errors.New("this kind of volume is not supported by a local node")
}

// claim follows a bound claim to its directory.
func (m *Manager) claim(ctx context.Context, namespace, name string) (string, error) {
	pvc, err := m.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading claim %s: %w", name, err)
	}
	if pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "" {
		return "", fmt.Errorf("claim %s is not bound", name)
	}
	pv, err := m.client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading volume %s: %w", pvc.Spec.VolumeName, err)
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != pvc.UID {
		return "", fmt.Errorf("volume %s is bound to another claim", pv.Name)
	}
	path := ""
	switch {
	case pv.Spec.Local != nil:
		path = pv.Spec.Local.Path
	case pv.Spec.HostPath != nil:
		path = pv.Spec.HostPath.Path
	default:
		return "", fmt.Errorf("volume %s is neither local nor hostPath", pv.Name)
	}
	return path, m.existing(path)
}

func (m *Manager) hostPath(h *corev1.HostPathVolumeSource) error {
	if err := m.allowed(h.Path); err != nil {
		return err
	}
	if h.Type != nil && (*h.Type == corev1.HostPathDirectoryOrCreate) {
		return makeDir(h.Path)
	}
	return m.existing(h.Path)
}

func (m *Manager) existing(path string) error {
	if err := m.allowed(path); err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("looking for the directory: %w", err)
	}
	return nil
}

func (m *Manager) allowed(path string) error {
	clean := filepath.Clean(path)
	for _, root := range m.hostPaths {
		if clean == root || strings.HasPrefix(clean, root+string(filepath.Separator)) {
			return nil
		}
	}
	return fmt.Errorf("path %s is outside the folders this node may use", path)
}

// Refresh writes the data volumes again if what they are made of has changed.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod, place render.Place) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		files, ok, err := (collector{m, pod, place}).dataVolume(ctx, v)
		if err == nil && ok {
			err = writeAll(filepath.Join(m.PodDir(pod.UID), "volumes", v.Name), files)
		}
		if err != nil {
			return fmt.Errorf("refreshing volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// HasData says whether the pod has volumes that Refresh would look at.
func HasData(pod *corev1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil {
			return true
		}
	}
	return false
}

// Unmount removes the pod's own folder. What lies in claims stays.
func (m *Manager) Unmount(uid types.UID) error {
	m.mu.Lock()
	for k := range m.tokens {
		if strings.HasPrefix(k, string(uid)+"/") {
			delete(m.tokens, k)
		}
	}
	m.mu.Unlock()
	if err := os.RemoveAll(m.PodDir(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the folder of pod %s: %w", uid, err)
	}
	return nil
}

func (m *Manager) token(key string) (heldToken, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tokens[key]
	return t, ok
}

func (m *Manager) keepToken(key string, t heldToken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens[key] = t
}

func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	return nil
}
