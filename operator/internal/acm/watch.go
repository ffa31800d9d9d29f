package acm

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	acmv1 "assent.dev/assent/proto/acm/v1"
)

const (
	// firstWait and longestWait bound the pause before a broken stream of nudges is opened again. Losing one costs latency
	// only, since the operator asks at least every few seconds anyway.
	firstWait   = 100 * time.Millisecond
	longestWait = 5 * time.Second
)

// Follow listens for nudges about an application until Unfollow. Repeating it changes nothing.
func (c *Client) Follow(application types.NamespacedName, policy, acm string) {
	conn := c.o.Connections[acm]
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.application(application)
	if a.followed == (follow{policy, acm}) && a.unfollow != nil {
		return
	}
	if a.unfollow != nil {
		a.unfollow()
		a.unfollow = nil
	}
	if conn == nil {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	a.followed, a.unfollow = follow{policy, acm}, cancel
	request := &acmv1.WatchRequest{Application: &acmv1.Application{
		Cluster: c.o.Cluster, Namespace: application.Namespace, Name: application.Name, Policy: policy,
	}}
	go c.follow(ctx, application, acmv1.NewClusterManagerServiceClient(conn), request)
}

// Unfollow stops listening and forgets the application, with any question under way.
func (c *Client) Unfollow(application types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.applications[application]
	if a == nil {
		return
	}
	if a.unfollow != nil {
		a.unfollow()
	}
	if a.cancel != nil {
		a.cancel()
	}
	delete(c.applications, application)
}

// Nudged takes whether "ask again" has come since it was last taken.
func (c *Client) Nudged(application types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.applications[application]
	if a == nil || !a.nudged {
		return false
	}
	a.nudged = false
	return true
}

// follow keeps a stream of nudges open.
func (c *Client) follow(ctx context.Context, application types.NamespacedName, client acmv1.ClusterManagerServiceClient, request *acmv1.WatchRequest) {
	wait := firstWait
	for {
		if c.listen(ctx, application, client, request) {
			wait = firstWait
		}
		pause := c.o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C():
		}
		wait = min(2*wait, longestWait)
	}
}

// listen takes nudges until the stream breaks and tells whether any came.
func (c *Client) listen(ctx context.Context, application types.NamespacedName, client acmv1.ClusterManagerServiceClient, request *acmv1.WatchRequest) bool {
	stream, err := client.Watch(ctx, request)
	if err != nil {
		return false
	}
	for heard := false; ; heard = true {
		if _, err := stream.Recv(); err != nil {
			return heard
		}
		c.nudge(application)
	}
}

func (c *Client) nudge(application types.NamespacedName) {
	c.mu.Lock()
	a := c.applications[application]
	if a == nil {
		c.mu.Unlock()
		return
	}
	a.nudged = true
	c.mu.Unlock()
	c.signal(application)
}
