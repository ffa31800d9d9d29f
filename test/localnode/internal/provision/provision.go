// Package provision is the external provisioner of the storage class local-dirs: a claim becomes a directory on the
// node that the scheduler has chosen.
//
// It plays the part of an external provisioner in the usual flow: the scheduler annotates the claim with the node, the
// provisioner creates a PersistentVolume that names the claim, the persistent-volume controller binds the two, and a
// released volume is removed here when its reclaim policy is Delete.
package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// ClassName is the storage class the agent creates.
	ClassName = "local-dirs"
	// Name is the provisioner that storage classes of local nodes name.
	Name = "localnode.assent.dev/dirs"

	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
)

const retryPause = 500 * time.Millisecond

// Nodes says where a node's volumes lie.
type Nodes interface {
	// VolumeDir returns the folder of a node's volumes. known is false for a node of somebody else, or removed; on is
	// false while the node has no power, when nothing can be done on its disk.
	VolumeDir(node string) (dir string, known, on bool)
}

// Provisioner makes and removes directories for claims.
type Provisioner struct {
	client kubernetes.Interface
	clock  clock.Clock
	log    logr.Logger
	nodes  Nodes
	// root is the folder beneath which all volumes of this agent lie.
	root string
	kick chan struct{}
}

// New makes a provisioner; Run starts it.
func New(client kubernetes.Interface, c clock.Clock, log logr.Logger, nodes Nodes, root string) *Provisioner {
	return &Provisioner{client: client, clock: c, log: log, nodes: nodes, root: root, kick: make(chan struct{}, 1)}
}

// Kick asks for a look at everything, for instance because a node has come back.
func (p *Provisioner) Kick() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// EnsureClass creates the storage class if there is none of its name.
func (p *Provisioner) EnsureClass(ctx context.Context) error {
	mode, reclaim := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: ClassName},
		Provisioner: Name, VolumeBindingMode: &mode, ReclaimPolicy: &reclaim,
	}
	_, err := p.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating storage class %s: %w", ClassName, err)
	}
	return nil
}

// Run works until ctx ends. Every change of a claim, a volume or a class leads to a look at all of them: they are few.
func (p *Provisioner) Run(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(p.client, 0)
	claims, volumes, classes := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes(), factory.Storage().V1().StorageClasses()
	onChange := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.Kick() },
		UpdateFunc: func(any, any) { p.Kick() },
		DeleteFunc: func(any) { p.Kick() },
	}
	for _, i := range []cache.SharedIndexInformer{claims.Informer(), volumes.Informer(), classes.Informer()} {
		if _, err := i.AddEventHandler(onChange); err != nil {
			p.log.Error(err, "the provisioner does not run")
			return
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	for {
		var again <-chan time.Time
		if err := p.look(ctx, claims.Lister().List, volumes.Lister().List, classes.Lister().List); err != nil && ctx.Err() == nil {
			p.log.Error(err, "provisioning; will try again")
			again = p.clock.After(retryPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		case <-again:
		}
	}
}

func (p *Provisioner) look(
	ctx context.Context,
	claims func(labels.Selector) ([]*corev1.PersistentVolumeClaim, error),
	volumes func(labels.Selector) ([]*corev1.PersistentVolume, error),
	classes func(labels.Selector) ([]*storagev1.StorageClass, error),
) error {
	cs, err1 := classes(labels.Everything())
	pvcs, err2 := claims(labels.Everything())
	pvs, err3 := volumes(labels.Everything())
	errs := []error{err1, err2, err3}
	ours := map[string]*storagev1.StorageClass{}
	for _, c := range cs {
		if c.Provisioner == Name {
			ours[c.Name] = c
		}
	}
	for _, pvc := range pvcs {
		errs = append(errs, p.provision(ctx, pvc, ours))
	}
	for _, pv := range pvs {
		errs = append(errs, p.reclaim(ctx, pv))
	}
	return errors.Join(errs...)
}

// provision makes the volume of a claim that waits for one on a node of ours.
func (p *Provisioner) provision(ctx context.Context, pvc *corev1.PersistentVolumeClaim, classes map[string]*storagev1.StorageClass) error {
	node := pvc.Annotations[selectedNode]
	if node == "" || pvc.Spec.VolumeName != "" || pvc.DeletionTimestamp != nil || pvc.Spec.StorageClassName == nil {
		return nil
	}
	class, ok := classes[*pvc.Spec.StorageClassName]
	if !ok || (pvc.Spec.VolumeMode != nil && *pvc.Spec.VolumeMode != corev1.PersistentVolumeFilesystem) {
		return nil
	}
	dir, known, on := p.nodes.VolumeDir(node)
	if !known || !on {
		return nil
	}
	pv := Volume(pvc, class, node, dir)
	if err := os.MkdirAll(pv.Spec.Local.Path, 0o777); err != nil {
		return fmt.Errorf("making the directory of claim %s/%s: %w", pvc.Namespace, pvc.Name, err)
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the volume of claim %s/%s: %w", pvc.Namespace, pvc.Name, err)
	}
	return nil
}

// Volume is the PersistentVolume for a claim: local to the node and reserved for the claim. Its name comes from the
// claim's UID, so making it twice is impossible.
func Volume(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node, dir string) *corev1.PersistentVolume {
	reclaim := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	name := "pvc-" + string(pvc.UID)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: Name}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: pvc.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   pvc.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: reclaim,
			StorageClassName:              class.Name,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(dir, name)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				}},
			}}}},
		},
	}
}

// reclaim removes a released volume and its directory. Without power the disk cannot be reached, so it waits.
func (p *Provisioner) reclaim(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Annotations[provisionedBy] != Name || pv.Status.Phase != corev1.VolumeReleased ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || pv.DeletionTimestamp != nil {
		return nil
	}
	local := pv.Spec.Local
	if local == nil || !strings.HasPrefix(filepath.Clean(local.Path), p.root+string(filepath.Separator)) {
		return nil
	}
	if _, known, on := p.nodes.VolumeDir(nodeOf(pv)); known && !on {
		return nil
	}
	if err := os.RemoveAll(local.Path); err != nil {
		return fmt.Errorf("removing the directory of volume %s: %w", pv.Name, err)
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pv.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting volume %s: %w", pv.Name, err)
	}
	return nil
}

// nodeOf reads the node back from the affinity that Volume writes; "" when it is not of that shape.
func nodeOf(pv *corev1.PersistentVolume) string {
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
		for _, t := range a.Required.NodeSelectorTerms {
			for _, e := range t.MatchExpressions {
				if e.Key == corev1.LabelHostname && len(e.Values) == 1 {
					return e.Values[0]
				}
			}
		}
	}
	return ""
}
