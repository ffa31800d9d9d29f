package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// operationFile is what eval is asked, in YAML or JSON: one step, and whatever else of the application's state
// matters. All but type and pod have defaults from the facts.
type operationFile struct {
	step `json:",inline"`
	// Application defaults to the name of the step's set in namespace default, judged by the given bundle.
	Application struct {
		Name           string `json:"name"`
		Namespace      string `json:"namespace"`
		MaxUnavailable int    `json:"max_unavailable"`
		// Bootstrapping: no pod has ever been available.
		Bootstrapping bool `json:"bootstrapping"`
	} `json:"application"`
	// Sets default to what the facts' pods show, with max_unavailable 1.
	Sets map[string]struct {
		Replicas       int    `json:"replicas"`
		MaxUnavailable int    `json:"max_unavailable"`
		Revision       string `json:"revision"`
	} `json:"sets"`
	// InFlight are steps that execute: they count as if they had happened.
	InFlight []step `json:"in_flight"`
	// Waiting are steps that are asked about in the same request.
	Waiting []step `json:"waiting"`
	// Disabled switches checks or reason codes off.
	Disabled []struct {
		Name string `json:"name"`
		Set  string `json:"set"`
		By   string `json:"by"`
		Why  string `json:"why"`
	} `json:"disabled"`
}

// step is one type, stage and pod.
type step struct {
	Type         string    `json:"type"`
	Stage        string    `json:"stage"`
	Pod          string    `json:"pod"`
	Set          string    `json:"set"`
	Index        *int      `json:"index"`
	Incarnation  int       `json:"incarnation"`
	Operation    string    `json:"operation"`
	State        string    `json:"state"`
	Cause        string    `json:"cause"`
	RevisionFrom string    `json:"revision_from"`
	RevisionTo   string    `json:"revision_to"`
	Node         string    `json:"node"`
	Canary       bool      `json:"canary"`
	DeletesData  bool      `json:"deletes_data"`
	WaitingSince time.Time `json:"waiting_since"`
	Deadline     time.Time `json:"deadline"`
}

var firstStage = map[string]string{
	string(decision.ScaleOut): string(decision.StageAdd), string(decision.ScaleIn): string(decision.StageRemove),
	string(decision.Deployment): string(decision.StageRemove), string(decision.Disruption): string(decision.StageRemove),
	string(decision.Swap): string(decision.StageAdd),
}

func parseOperation(raw []byte) (*operationFile, error) {
	o := &operationFile{}
	if err := yaml.UnmarshalStrict(raw, o); err != nil {
		return nil, fmt.Errorf("reading the operation: %w", err)
	}
	return o, nil
}

// state gives the request that an operator would send: with everything that is in flight, then with what waits too.
func (o *operationFile) state(policy string, seen *facts.Snapshot, now time.Time) (*decision.State, error) {
	s := &decision.State{Session: decision.Session{ID: "eval", Term: 1, Age: time.Hour}, MaxUnavailable: max(1, o.Application.MaxUnavailable)}
	for i, in := range o.InFlight {
		if err := o.add(s, in, "in_flight", i, cmp.Or(in.State, string(decision.Acting)), seen, now); err != nil {
			return nil, err
		}
	}
	for i, w := range append([]step{o.step}, o.Waiting...) {
		if err := o.add(s, w, "waiting", i, string(decision.Waiting), seen, now); err != nil {
			return nil, err
		}
	}
	asked := s.Instances[len(o.InFlight)]
	s.Application = decision.ApplicationRef{Namespace: cmp.Or(o.Application.Namespace, "default"), Name: cmp.Or(o.Application.Name, asked.Set), Policy: policy}
	o.addSets(s, seen)
	for _, d := range o.Disabled {
		s.Disabled = append(s.Disabled, decision.DisabledCheck{Set: d.Set, Name: d.Name, Until: now.Add(time.Hour), By: cmp.Or(d.By, "eval"), Why: cmp.Or(d.Why, "asked for")})
	}
	return s, nil
}

func (o *operationFile) add(s *decision.State, in step, list string, i int, state string, seen *facts.Snapshot, now time.Time) error {
	pod := seen.Pods().Get(in.Pod)
	switch {
	case in.Type == "" || in.Pod == "":
		return fmt.Errorf("reading the operation: type and pod are needed (%s, entry %d)", list, i)
	case firstStage[in.Type] == "":
		return fmt.Errorf("reading the operation: type %q, known: %v", in.Type, slices.Sorted(maps.Keys(firstStage)))
	}
	set, index := splitName(in.Pod)
	incarnation := in.Incarnation
	if pod != nil {
		set, index, incarnation = pod.Set, pod.Index, pod.Incarnation
	}
	if in.Index != nil {
		index = *in.Index
	}
	since := in.WaitingSince
	if since.IsZero() {
		since = now.Add(-time.Minute)
	}
	name := cmp.Or(in.Operation, in.Type+"-"+in.Pod)
	s.Instances = append(s.Instances, decision.Instance{
		Step: decision.Step{
			Operation: name, Type: decision.Type(in.Type), Stage: decision.Stage(cmp.Or(in.Stage, firstStage[in.Type])),
			Set: cmp.Or(in.Set, set), Pod: in.Pod, Index: index, Incarnation: incarnation,
		},
		State: decision.InstanceState(state), Cause: in.Cause, RevisionFrom: in.RevisionFrom, RevisionTo: in.RevisionTo, Node: in.Node,
		Canary: in.Canary, DeletesData: in.DeletesData, WaitingSince: since, StateSince: since, Deadline: in.Deadline,
	})
	o.count(s, name, in.Type, decision.InstanceState(state).InFlight())
	return nil
}

// count keeps the operation's progress.
func (o *operationFile) count(s *decision.State, name, kind string, running bool) {
	i := slices.IndexFunc(s.Operations, func(op decision.Summary) bool { return op.Name == name })
	if i < 0 {
		i = len(s.Operations)
		s.Operations = append(s.Operations, decision.Summary{Name: name, Type: decision.Type(kind)})
	}
	p := &s.Operations[i].Progress
	p.Total++
	if running {
		p.Running++
	} else {
		p.Waiting++
	}
}

// addSets takes what the file says of the sets, and for the rest what the facts and the steps show.
func (o *operationFile) addSets(s *decision.State, seen *facts.Snapshot) {
	indices := map[string]map[int]bool{}
	note := func(set string, index int) {
		if indices[set] == nil {
			indices[set] = map[int]bool{}
		}
		indices[set][index] = true
	}
	known := map[string][]facts.Range{}
	for _, p := range seen.Pods().All() {
		note(p.Set, p.Index)
	}
	for set, all := range indices {
		known[set] = rangesOf(all)
	}
	for _, i := range s.Instances {
		note(i.Set, i.Index)
	}
	for name, set := range o.Sets {
		indices[name] = map[int]bool{}
		for i := range set.Replicas {
			indices[name][i] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(indices)) {
		given := o.Sets[name]
		set := decision.Set{Name: name, Wanted: rangesOf(indices[name]), MaxUnavailable: max(1, given.MaxUnavailable), Revision: given.Revision}
		if !o.Application.Bootstrapping {
			set.EverAvailable = known[name]
		}
		s.Sets = append(s.Sets, set)
	}
}

func rangesOf(indices map[int]bool) []facts.Range {
	var ranges []facts.Range
	for _, i := range slices.Sorted(maps.Keys(indices)) {
		if n := len(ranges); n > 0 && ranges[n-1].Last == i-1 {
			ranges[n-1].Last = i
			continue
		}
		ranges = append(ranges, facts.Range{First: i, Last: i})
	}
	return ranges
}

// splitName takes "<set>-<index>" apart; an index that is none is 0.
func splitName(pod string) (set string, index int) {
	for i := len(pod) - 1; i > 0; i-- {
		if pod[i] == '-' {
			if _, err := fmt.Sscanf(pod[i+1:], "%d", &index); err == nil {
				return pod[:i], index
			}
			break
		}
	}
	return pod, 0
}
