package decisionlog

import (
	"time"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/judge"
)

// Record is one line of the log. With the bundle of its revision, Question is enough to judge again, unless a rule of
// the bundle reads data.facts.
type Record struct {
	Time        time.Time   `json:"time"`
	Application Application `json:"application"`
	Session     string      `json:"session,omitempty"`
	Request     uint64      `json:"request,omitempty"`
	// Epoch is the term of the Lease under which it was decided.
	Epoch    int64    `json:"epoch"`
	Preview  bool     `json:"preview,omitempty"`
	Decision Decision `json:"decision"`
	// TookSeconds is the evaluation alone; absent when the policy was not asked.
	TookSeconds float64            `json:"took_seconds,omitempty"`
	Question    *decision.Question `json:"question,omitempty"`
}

// Application identifies whom it is about.
type Application struct {
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Policy    string `json:"policy"`
}

// Decision is the answer to one step. Durations are seconds.
type Decision struct {
	ID                  string            `json:"id"`
	Operation           string            `json:"operation"`
	Type                decision.Type     `json:"type"`
	Stage               decision.Stage    `json:"stage"`
	Set                 string            `json:"set"`
	Pod                 string            `json:"pod"`
	Verdict             decision.Verdict  `json:"verdict"`
	Reasons             []Reason          `json:"reasons,omitempty"`
	Warnings            []Reason          `json:"warnings,omitempty"`
	Needs               []Need            `json:"needs,omitempty"`
	Parameters          map[string]string `json:"parameters,omitempty"`
	BundleRevision      string            `json:"bundle_revision,omitempty"`
	FactsVersion        string            `json:"facts_version,omitempty"`
	FactsAgeSeconds     float64           `json:"facts_age_seconds,omitempty"`
	ExpiresAfterSeconds float64           `json:"expires_after_seconds,omitempty"`
	RetryAfterSeconds   float64           `json:"retry_after_seconds,omitempty"`
}

// Reason is one argument.
type Reason struct {
	Code              string         `json:"code"`
	Message           string         `json:"message"`
	Details           map[string]any `json:"details,omitempty"`
	RetryAfterSeconds float64        `json:"retry_after_seconds,omitempty"`
	Disabled          bool           `json:"disabled,omitempty"`
}

// Need is an action that would make the step safe.
type Need struct {
	Action     string         `json:"action"`
	Subject    string         `json:"subject"`
	Parameters map[string]any `json:"parameters,omitempty"`
}

// RecordOf gives the line of an entry.
func RecordOf(e judge.Entry) Record {
	a := e.Application
	return Record{
		Time: e.Time.UTC(), Application: Application{Cluster: a.Cluster, Namespace: a.Namespace, Name: a.Name, Policy: a.Policy},
		Session: e.Session, Request: e.Request, Epoch: e.Epoch, Preview: e.Preview,
		Decision: DecisionOf(e.Decision), TookSeconds: e.Took.Seconds(), Question: e.Question,
	}
}

// DecisionOf gives the written form of a decision.
func DecisionOf(d decision.Decision) Decision {
	r := Decision{
		ID: d.ID, Operation: d.Operation, Type: d.Type, Stage: d.Stage, Set: d.Set, Pod: d.Pod, Verdict: d.Verdict,
		Reasons: reasonsOf(d.Reasons), Warnings: reasonsOf(d.Warnings), Parameters: d.Parameters,
		BundleRevision: d.BundleRevision, FactsVersion: d.FactsVersion, FactsAgeSeconds: d.FactsAge.Seconds(),
		ExpiresAfterSeconds: d.ExpiresAfter.Seconds(), RetryAfterSeconds: d.RetryAfter.Seconds(),
	}
	for _, n := range d.Needs {
		r.Needs = append(r.Needs, Need(n))
	}
	return r
}

func reasonsOf(reasons []decision.Reason) []Reason {
	var out []Reason
	for _, r := range reasons {
		out = append(out, Reason{Code: r.Code, Message: r.Message, Details: r.Details, RetryAfterSeconds: r.RetryAfter.Seconds(), Disabled: r.Disabled})
	}
	return out
}
