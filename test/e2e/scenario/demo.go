// Package scenario is the main job from end to end, once: `make demo` prints it and the e2e test asserts it.
package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/e2e/load"
	"assent.dev/assent/test/e2e/record"
	"assent.dev/assent/test/e2e/stack"
	"assent.dev/assent/test/localnode"
)

// Options of a run.
type Options struct {
	// Dir for data and logs; it must exist. Root of the repository.
	Dir, Root string
	// Out gets the progress and the timeline.
	Out io.Writer
}

// Nodes on which the members run: one in each zone.
func Nodes() []localnode.Node {
	return []localnode.Node{{Name: "n-a1", Zone: "a"}, {Name: "n-b1", Zone: "b"}, {Name: "n-c1", Zone: "c"}}
}

var endpoints = []string{"http://127.0.60.1:2379", "http://127.0.60.2:2379", "http://127.0.60.3:2379"}

type demo struct {
	o      Options
	s      *stack.Stack
	rec    *record.Recorder
	quorum *record.Quorum
	writer *load.Etcd
}

// Start brings the product up, applies the etcd set and waits until it is whole and under load.
func Start(ctx context.Context, o Options) (*Run, error) {
	s, err := stack.Start(ctx, stack.Options{Dir: o.Dir, Root: o.Root, Nodes: Nodes(), Out: o.Out})
	if err != nil {
		return nil, err
	}
	d := &demo{o: o, s: s}
	if err := d.begin(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return &Run{demo: d, begun: time.Now()}, nil
}

func (d *demo) begin(ctx context.Context) error {
	var err error
	if d.rec, err = record.Start(ctx, d.s.ControlPlane.Config(), "default", d.o.Out); err != nil {
		return err
	}
	lss, err := d.manifest()
	if err != nil {
		return err
	}
	d.rec.Say("-- the user applies LiStatefulSet etcd: 3 members with volumes, policy etcd")
	if err := d.s.Client.Create(ctx, lss); err != nil {
		return fmt.Errorf("creating the set: %w", err)
	}
	if err := d.whole(ctx); err != nil {
		return err
	}
	if d.quorum, err = record.WatchQuorum(ctx, endpoints, 100*time.Millisecond); err != nil {
		return err
	}
	if err := until(ctx, time.Minute, "a member to say that it leads", func(context.Context) error {
		if d.leader() == "" {
			return errors.New("none does")
		}
		return nil
	}); err != nil {
		return err
	}
	d.rec.AskLeader(d.leader)
	d.writer, err = load.StartEtcd(ctx, endpoints, 5*time.Millisecond)
	d.rec.Say("-- a client begins to write, all the time")
	return err
}

// leader is the pod whose member last said that it leads; empty before the first did.
func (d *demo) leader() string {
	for i, e := range endpoints {
		if e == d.quorum.Leader() {
			return fmt.Sprintf("etcd-%d", i)
		}
	}
	return ""
}

// manifest is manifests/etcd.yaml with the path of the real etcd in place of its name.
func (d *demo) manifest() (*v1alpha1.LiStatefulSet, error) {
	text, err := os.ReadFile(filepath.Join(d.o.Root, "test", "e2e", "manifests", "etcd.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the sample: %w", err)
	}
	etcd, err := d.s.ControlPlane.Binary("etcd")
	if err != nil {
		return nil, err
	}
	lss := &v1alpha1.LiStatefulSet{}
	filled := strings.Replace(string(text), "            - etcd\n", "            - "+etcd+"\n", 1)
	if err := yaml.UnmarshalStrict([]byte(filled), lss); err != nil {
		return nil, fmt.Errorf("reading the sample: %w", err)
	}
	return lss, nil
}

// Run is a set that is up and under load.
type Run struct {
	*demo
	begun time.Time
}

// Stack gives the parts, to explore.
func (r *Run) Stack() *stack.Stack { return r.s }

// ControlPlane gives the control plane.
func (r *Run) ControlPlane() *controlplane.ControlPlane { return r.s.ControlPlane }

// Close stops everything.
func (r *Run) Close() {
	if r.quorum != nil {
		r.quorum.Stop()
	}
	if r.rec != nil {
		r.rec.Stop()
	}
	r.s.Close()
}

// Finish stops the load, compares and reads the decision log.
func (r *Run) Finish(ctx context.Context) (Result, error) {
	report, err := r.writer.Finish(ctx)
	if err != nil {
		return Result{}, err
	}
	res := Result{
		Load: report, MostDownByUs: r.rec.MostDownByUs(), LeastUp: r.quorum.Least(), Members: len(endpoints),
		Samples: r.quorum.Samples(), Leaderless: r.quorum.LongestLeaderless(), Took: time.Since(r.begun),
	}
	res.readGrants(r.rec.Grants())
	return res, res.readDecisions(r.s.DecisionLog)
}

// RollingUpdate is part (a): one member after another, the leader last.
func (r *Run) RollingUpdate(ctx context.Context) error {
	r.rec.Say("== (a) a rolling update; the leader is %s", r.leader())
	if err := r.round(ctx, 1); err != nil {
		return err
	}
	return r.whole(ctx)
}

// MemberLostBetweenSteps is part (b): an updated member dies with its node before the next step.
func (r *Run) MemberLostBetweenSteps(ctx context.Context) error {
	r.rec.Say("== (b) a second update; between two steps a member that is already updated is lost with its node")
	before := r.newestName(ctx)
	if err := r.round(ctx, 2); err != nil {
		return err
	}
	first, err := r.instance(ctx, before, "the first step", func(in v1alpha1.InstanceStatus) bool { return in.State.InFlight() })
	if err != nil {
		return err
	}
	r.rec.Say("-- the user pauses the rollout, so that there is a between")
	if err := r.pause(ctx, v1alpha1.PausedRollout); err != nil {
		return err
	}
	if _, err := r.instance(ctx, before, first.Pod+" to be updated", func(in v1alpha1.InstanceStatus) bool {
		return in.Pod == first.Pod && in.State == v1alpha1.Succeeded
	}); err != nil {
		return err
	}
	pod, err := r.pod(ctx, first.Pod)
	if err != nil {
		return err
	}
	return r.withoutNode(ctx, before, pod.Spec.NodeName)
}

func (r *Run) withoutNode(ctx context.Context, before, node string) error {
	r.rec.Say("-- node %s loses power; then the user resumes the rollout", node)
	r.s.Nodes.Node(node).PowerOff()
	deletions := r.rec.Deletions()
	if err := r.pause(ctx, ""); err != nil {
		return err
	}
	waits := func(in v1alpha1.InstanceStatus) bool {
		return in.State == v1alpha1.Waiting && in.Verdict == "defer" && hasReason(in, isPolicy)
	}
	if _, err := r.instance(ctx, before, "the next step to be deferred by the policy", waits); err != nil {
		return err
	}
	text, err := r.show(ctx, "get", "op")
	if err != nil {
		return err
	}
	if !strings.Contains(text, "quorum.") && !strings.Contains(text, "caught_up.") && !strings.Contains(text, "budget.") && !strings.Contains(text, "leader.") {
		return fmt.Errorf("kubectl get op does not show the policy's reason:\n%s", text)
	}
	if err := holds(ctx, 5*time.Second, func(context.Context) error {
		if now := r.rec.Deletions(); now != deletions {
			return fmt.Errorf("%d pods were stopped while the cluster was not whole", now-deletions)
		}
		return nil
	}); err != nil {
		return err
	}
	r.rec.Say("-- for 5 s nothing was touched; node %s returns", node)
	if err := r.s.Nodes.Node(node).PowerOn(ctx); err != nil {
		return fmt.Errorf("switching %s on: %w", node, err)
	}
	return r.whole(ctx)
}

func isPolicy(code string) bool {
	for _, machinery := range []string{"acm.", "facts.", "policy.", "bundle.", "cap.", "pod.", "set.", "grant.", "state."} {
		if strings.HasPrefix(code, machinery) {
			return false
		}
	}
	return true
}

func (r *Run) pause(ctx context.Context, mode v1alpha1.PauseMode) error {
	return r.edit(ctx, func(lss *v1alpha1.LiStatefulSet) error {
		lss.Spec.Paused = mode
		return nil
	})
}

// freezeMessage is the team's own sentence.
const freezeMessage = "no deployments until the audit is over; ask the storage team"

const freezeRule = `
deny contains r if {
	input.operation.type == "deployment"
	r := {"code": "etcd.audit_freeze", "message": "` + freezeMessage + `"}
}
`

const freezeTest = `package apps.etcd_test

import data.acm.testing
import data.apps.etcd as policy

base := {"application": "etcd", "pods": {"etcd-0": {}, "etcd-1": {}, "etcd-2": {}}, "members": testing.voters(["etcd-0", "etcd-1", "etcd-2"], "etcd-0")}

judge(w) := d if {
	d := testing.decide(testing.outputs(policy.deny, policy.defer, {x | x := policy.approve})) with input as w.input with data.facts as w.facts
}

test_deployments_are_frozen if testing.expect(
	judge(testing.world(object.union(base, {"operation": {"type": "deployment", "pod": "etcd-2"}}))),
	"deny", {"etcd.audit_freeze"},
)

test_never_approves_blind if {
	every w in testing.blind("etcd") { judge(w).verdict != "approve" }
}
`

// PolicyEdit is part (c): the team forbids deployments by an edit on disk, and allows them again.
func (r *Run) PolicyEdit(ctx context.Context) error {
	r.rec.Say("== (c) the team edits its policy and its test on disk: no deployments")
	dir := filepath.Join(r.s.BundlesDir, "etcd")
	policy, tests := filepath.Join(dir, "policy.rego"), filepath.Join(dir, "policy_test.rego")
	oldPolicy, err1 := os.ReadFile(policy)
	oldTests, err2 := os.ReadFile(tests)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}
	if err := writeBoth(policy, string(oldPolicy)+freezeRule, tests, freezeTest); err != nil {
		return err
	}
	if text, err := r.s.ACM(ctx, "test", dir); err != nil {
		return fmt.Errorf("running acm test: %w\n%s", err, text)
	}
	before := r.newestName(ctx)
	if err := r.round(ctx, 3); err != nil {
		return err
	}
	denied := func(in v1alpha1.InstanceStatus) bool {
		return in.State == v1alpha1.Denied && hasReason(in, func(code string) bool { return code == "etcd.audit_freeze" })
	}
	if _, err := r.instance(ctx, before, "the update to be denied", denied); err != nil {
		return err
	}
	text, err := r.show(ctx, "get", "op")
	if err != nil {
		return err
	}
	if !strings.Contains(text, freezeMessage) {
		return fmt.Errorf("kubectl get op does not show the team's own message:\n%s", text)
	}
	r.rec.Say("-- the team undoes the edit")
	if err := writeBoth(policy, string(oldPolicy), tests, string(oldTests)); err != nil {
		return err
	}
	return r.whole(ctx)
}

func writeBoth(a, textA, b, textB string) error {
	return errors.Join(os.WriteFile(a, []byte(textA), 0o600), os.WriteFile(b, []byte(textB), 0o600))
}

// WithoutACM is part (d): no approvals, no disruption; a killed pod comes back; the update goes on later.
func (r *Run) WithoutACM(ctx context.Context) error {
	r.rec.Say("== (d) the ACM is killed; then the user edits the template")
	r.s.StopACM()
	before, deletions := r.newestName(ctx), r.rec.Deletions()
	if err := r.round(ctx, 4); err != nil {
		return err
	}
	away := func(in v1alpha1.InstanceStatus) bool {
		return in.State == v1alpha1.Waiting && hasReason(in, func(code string) bool { return code == "acm.unavailable" })
	}
	if _, err := r.instance(ctx, before, "the update to wait for the ACM", away); err != nil {
		return err
	}
	if err := r.killAndReturn(ctx, "etcd-1"); err != nil {
		return err
	}
	if err := holds(ctx, 5*time.Second, func(context.Context) error {
		if now := r.rec.Deletions(); now != deletions+1 {
			return fmt.Errorf("%d pods were stopped while the ACM was away, want only the one killed by hand", now-deletions)
		}
		return nil
	}); err != nil {
		return err
	}
	r.rec.Say("-- for 5 s more nothing else was touched")
	if _, err := r.show(ctx, "get", "lss,op"); err != nil {
		return err
	}
	r.rec.Say("-- the ACM returns")
	if err := r.s.StartACM(ctx); err != nil {
		return err
	}
	return r.whole(ctx)
}

// killAndReturn deletes a Pod by hand and waits until another one with its name is Ready.
func (r *Run) killAndReturn(ctx context.Context, name string) error {
	pod, err := r.pod(ctx, name)
	if err != nil {
		return err
	}
	r.rec.Say("-- somebody kills Pod %s", name)
	if err := r.s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	return until(ctx, time.Minute, name+" to come back without an ACM", func(ctx context.Context) error {
		now, err := r.pod(ctx, name)
		if apierrors.IsNotFound(err) || err == nil && (now.UID == pod.UID || !podReady(now)) {
			return fmt.Errorf("%s is not back", name)
		}
		return err
	})
}

func annotateTemplate(lss *v1alpha1.LiStatefulSet, key, value string) error {
	template := map[string]any{}
	if err := json.Unmarshal(lss.Spec.Template.Raw, &template); err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	metadata, _ := template["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		return errors.New("the sample's template has no annotations")
	}
	annotations[key] = value
	raw, err := json.Marshal(template)
	if err != nil {
		return fmt.Errorf("writing the template: %w", err)
	}
	lss.Spec.Template.Raw, lss.Spec.Template.Object = raw, nil
	return nil
}
