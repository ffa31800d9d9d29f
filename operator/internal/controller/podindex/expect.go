package podindex

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	plan "assent.dev/assent/operator/internal/plan/podindex"
)

// patience is how long a cache may take to show a created Operation before it is looked for live.
const patience = 10 * time.Second

// expected remembers which Operations were created, so that a cache that does not show them yet costs no live read. It
// only saves work: a lost memory leads to a live look, never to a second Operation.
type expected struct {
	mu      sync.Mutex
	byIndex map[types.NamespacedName]*created
}

// created are the Operations of one PodIndex, with the moment from which on they are looked for.
type created struct {
	index types.UID
	until map[string]time.Time
}

func (c *Controller) expect(index *v1alpha1.PodIndex, name string) {
	c.expected.mu.Lock()
	defer c.expected.mu.Unlock()
	key := client.ObjectKeyFromObject(index)
	mine := c.expected.byIndex[key]
	if mine == nil || mine.index != index.UID {
		mine = &created{index: index.UID, until: map[string]time.Time{}}
		c.expected.byIndex[key] = mine
	}
	mine.until[name] = c.deps.Clock.Now().Add(patience)
}

// unexpected says whether an Operation is missing that this process did not create just now, and forgets those that the
// cache shows. patient is whether one is still waited for.
func (c *Controller) unexpected(in plan.Input, p plan.Plan) (missing, patient bool) {
	c.expected.mu.Lock()
	defer c.expected.mu.Unlock()
	until := map[string]time.Time{}
	if mine := c.expected.byIndex[client.ObjectKeyFromObject(in.Index)]; mine != nil && mine.index == in.Index.UID {
		until = mine.until
	}
	for i := range in.Operations {
		delete(until, in.Operations[i].Name)
	}
	for i := range p.Missing {
		if in.Now.Before(until[p.Missing[i].Name]) {
			patient = true
		} else {
			missing = true
		}
	}
	return missing, patient
}

func (c *Controller) forget(key types.NamespacedName) {
	c.expected.mu.Lock()
	delete(c.expected.byIndex, key)
	c.expected.mu.Unlock()
	c.pace.Forget(key)
}
