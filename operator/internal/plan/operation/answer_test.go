package operation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/question"
)

const op1 = "db-0-dep-1"

// asked is a question about db-0 to db-2: waiting, waiting and denied; db-3 is in flight.
func asked() Asked {
	a := Asked{About: map[Ref]About{}, SentAt: noon, Question: question.Question{Session: "s1", Number: 1}}
	for i, state := range []v1alpha1.InstanceState{v1alpha1.Waiting, v1alpha1.Waiting, v1alpha1.Denied, v1alpha1.Verifying} {
		pod := v1alpha1.PodName("db", int32(i), 0)
		a.Question.Instances = append(a.Question.Instances, question.Instance{
			Step:  question.Step{Operation: op1, Type: v1alpha1.Deployment, Stage: v1alpha1.StageRemove, Set: "db", Pod: pod, Index: int32(i)},
			State: state,
		})
		if state != v1alpha1.Verifying {
			a.About[Ref{op1, pod}] = About{PodUID: "uid-" + pod, Key: "key", Down: i == 1}
		}
	}
	return a
}

func says(pod string, v question.Verdict, change ...func(*question.Decision)) question.Decision {
	d := question.Decision{ID: "d-" + pod, Operation: op1, Pod: pod, Stage: v1alpha1.StageRemove, Verdict: v, ExpiresAfter: 30 * time.Second}
	if v != question.Approve {
		d.Reasons = []v1alpha1.Reason{{Code: "check.code", Message: "because"}}
	}
	for _, f := range change {
		f(&d)
	}
	return d
}

func TestAnAnswerGivesApprovalsAndWords(t *testing.T) {
	approvals, words := Take(asked(), question.Answer{Decisions: []question.Decision{
		says("db-0", question.Approve, func(d *question.Decision) { d.Parameters = map[string]string{"a": "b"} }),
		says("db-1", question.Defer), says("db-2", question.Deny, func(d *question.Decision) { d.RetryAfter = time.Minute }),
	}}, map[Ref]Word{{op1, "db-1"}: {WaitingSince: noon.Add(-time.Hour)}}, noon.Add(time.Second))
	require.Len(t, approvals, 1)
	require.Equal(t, "d-db-0", approvals[0].Decision)
	require.Equal(t, noon.Add(30*time.Second), approvals[0].Deadline, "counted from the send")
	require.Equal(t, "uid-db-0", approvals[0].PodUID)
	require.Equal(t, map[string]string{"a": "b"}, approvals[0].Parameters)
	require.Equal(t, Word{
		Verdict: question.Defer, Reasons: []v1alpha1.Reason{{Code: "check.code", Message: "because"}}, WaitingSince: noon.Add(-time.Hour),
	}, words[Ref{op1, "db-1"}])
	require.Equal(t, "key", words[Ref{op1, "db-2"}].Key)
	require.Equal(t, noon.Add(61*time.Second), words[Ref{op1, "db-2"}].RetryAt)
}

func TestWhatIsNotClearlyAnApprovalIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		decisions []question.Decision
		code      string
	}{
		"nothing said":           {nil, question.CodeMalformed},
		"no decision id":         {[]question.Decision{says("db-0", question.Approve, func(d *question.Decision) { d.ID = "" })}, question.CodeMalformed},
		"no expiry":              {[]question.Decision{says("db-0", question.Approve, func(d *question.Decision) { d.ExpiresAfter = 0 })}, question.CodeMalformed},
		"expired on arrival":     {[]question.Decision{says("db-0", question.Approve, func(d *question.Decision) { d.ExpiresAfter = time.Millisecond })}, question.CodeGrantExpired},
		"another stage":          {[]question.Decision{says("db-0", question.Approve, func(d *question.Decision) { d.Stage = v1alpha1.StageAdd })}, question.CodeMalformed},
		"an unknown verdict":     {[]question.Decision{says("db-0", "yes", func(d *question.Decision) { d.Reasons = nil })}, question.CodeMalformed},
		"no reason":              {[]question.Decision{says("db-0", question.Defer, func(d *question.Decision) { d.Reasons = nil })}, question.CodeMalformed},
		"approved and deferred":  {[]question.Decision{says("db-0", question.Approve), says("db-0", question.Defer)}, "check.code"},
		"deferred and approved":  {[]question.Decision{says("db-0", question.Defer), says("db-0", question.Approve)}, "check.code"},
		"a pod nobody asked for": {[]question.Decision{says("db-9", question.Approve)}, question.CodeMalformed},
		"a pod in flight":        {[]question.Decision{says("db-3", question.Approve)}, question.CodeMalformed},
		"a failure":              {[]question.Decision{says("db-0", question.Approve)}, question.CodeTimeout},
	} {
		a := question.Answer{Decisions: c.decisions}
		if name == "a failure" {
			a.Failure, a.Message = question.CodeTimeout, "too late"
		}
		approvals, words := Take(asked(), a, nil, noon.Add(time.Second))
		require.Empty(t, approvals, name)
		require.Equal(t, c.code, words[Ref{op1, "db-0"}].Code(), name)
		require.Equal(t, question.Defer, words[Ref{op1, "db-0"}].Verdict, name)
		require.NotContains(t, words, Ref{op1, "db-2"}, "what was denied stays denied: "+name)
		require.NotContains(t, words, Ref{op1, "db-3"}, name)
	}
}

func TestOneDecisionIDApprovesOnePod(t *testing.T) {
	same := func(d *question.Decision) { d.ID = "d" }
	approvals, words := Take(asked(), question.Answer{Decisions: []question.Decision{
		says("db-0", question.Approve, same), says("db-1", question.Approve, same),
	}}, nil, noon)
	require.Len(t, approvals, 1)
	require.Equal(t, question.CodeMalformed, words[Ref{op1, "db-1"}].Code())
}

// TestGR01_NoErrorPathApproves goes over every failure code.
func TestGR01_NoErrorPathApproves(t *testing.T) {
	for _, code := range []string{
		question.CodeUnavailable, question.CodeTimeout, question.CodeStarting, question.CodeNotDeciding, question.CodeMalformed,
	} {
		approvals, words := Take(asked(), question.Answer{Failure: code}, nil, noon)
		require.Empty(t, approvals)
		require.Equal(t, code, words[Ref{op1, "db-0"}].Code())
	}
}

func dialog() (*Dialog, question.Question) {
	d, q := &Dialog{}, asked().Question
	return d, d.Ask(q, asked().About, noon)
}

func answerTo(q question.Question) question.Answer {
	return question.Answer{Session: q.Session, Number: q.Number, Epoch: 3, Decisions: []question.Decision{says("db-0", question.Approve)}}
}

const patience = 2 * time.Second

func TestGR02_ALateAnswerIsATimeoutWhateverItSays(t *testing.T) {
	d, q := dialog()
	require.Nil(t, d.GiveUp(noon.Add(patience), patience))
	end := d.Receive(answerTo(q), noon.Add(patience+1), patience)
	require.Equal(t, question.CodeTimeout, end.Failure)
	require.Empty(t, end.Decisions)

	d, q = dialog()
	require.Equal(t, question.CodeTimeout, d.GiveUp(noon.Add(patience+1), patience).Failure)
	require.Nil(t, d.Receive(answerTo(q), noon.Add(30*time.Second), patience), "given up already")
}

func TestGR09_OnlyTheAnswerToTheLastQuestionCounts(t *testing.T) {
	d, first := dialog()
	require.NotNil(t, d.GiveUp(noon.Add(3*time.Second), patience))
	second := d.Ask(asked().Question, asked().About, noon.Add(4*time.Second))
	require.EqualValues(t, 2, second.Number)
	require.Nil(t, d.Receive(answerTo(first), noon.Add(4*time.Second), patience))
	foreign := answerTo(second)
	foreign.Session = "s0"
	require.Nil(t, d.Receive(foreign, noon.Add(4*time.Second), patience))
	require.Empty(t, d.Receive(answerTo(second), noon.Add(5*time.Second), patience).Failure)
	require.Nil(t, d.Receive(answerTo(second), noon.Add(5*time.Second), patience), "the same again")
}

func TestAnAnswerUnderALowerEpochIsDropped(t *testing.T) {
	d, q := dialog()
	d.Receive(answerTo(q), noon, patience)
	q = d.Ask(q, nil, noon)
	old := answerTo(q)
	old.Epoch = 2
	end := d.Receive(old, noon, patience)
	require.Equal(t, question.CodeNotDeciding, end.Failure)
	require.Empty(t, end.Decisions)
}

func TestAnotherACMCountsItsOwnEpochs(t *testing.T) {
	d, q := dialog()
	d.Receive(answerTo(q), noon, patience)
	q.ACM = "other"
	q = d.Ask(q, nil, noon)
	first := answerTo(q)
	first.Epoch = 0
	require.Empty(t, d.Receive(first, noon, patience).Failure)
}

func TestAskingHappensOnChangeOnNudgeAndByHeartbeat(t *testing.T) {
	d, q := dialog()
	due := func(d *Dialog, q question.Question, after time.Duration) bool {
		yes, at := d.Due(q, noon.Add(after), patience)
		require.True(t, yes || at.After(noon.Add(after)), "either now or at a time to come")
		return yes
	}
	require.False(t, due(d, q, time.Second), "one question at a time")
	d.Receive(answerTo(q), noon, patience)
	require.False(t, due(d, q, Heartbeat-1))
	require.True(t, due(d, q, Heartbeat))
	require.Less(t, Heartbeat, 5*time.Second)

	aged := q
	aged.Age, aged.Number = time.Hour, 77
	aged.Pods = []question.Pod{}
	require.False(t, due(d, aged, time.Second), "ages change no answer")
	changed := q
	changed.Pods = []question.Pod{{Name: "db-0", UID: "u"}}
	require.True(t, due(d, changed, time.Second))
	d.Nudged = true
	require.True(t, due(d, q, time.Second))
	d.Ask(q, nil, noon)
	require.False(t, d.Nudged)
}

func TestAfterAFailureTheBackOffHoldsWhateverChanges(t *testing.T) {
	d, q := dialog()
	var last time.Duration
	now := noon
	for range 10 {
		d.Receive(question.Answer{Session: q.Session, Number: q.Number, Failure: question.CodeUnavailable}, now, patience)
		d.Nudged = true
		changed := q
		changed.MaxUnavailable++
		yes, at := d.Due(changed, now, patience)
		require.False(t, yes)
		require.GreaterOrEqual(t, at.Sub(now), last)
		last, now = at.Sub(now), at
		yes, _ = d.Due(q, now, patience)
		require.True(t, yes)
		q = d.Ask(q, nil, now)
	}
	require.Equal(t, 5*time.Second, last)
	notMe := question.Answer{Session: q.Session, Number: q.Number, Decisions: []question.Decision{says("db-0", question.Defer, func(d *question.Decision) {
		d.Reasons[0].Code = question.CodeNotDeciding
	})}}
	d.Fails = 0
	require.Empty(t, d.Receive(notMe, now, patience).Failure)
	yes, at := d.Due(q, now, patience)
	require.False(t, yes)
	require.Equal(t, 200*time.Millisecond, at.Sub(now), "another replica is asked soon")
}

func TestTheEndIsToldOnce(t *testing.T) {
	d := &Dialog{}
	q := asked().Question
	q.Policy = "etcd"
	require.True(t, d.Told(q), "nothing was ever open")
	q = d.Ask(q, nil, noon)
	require.False(t, d.Told(q))
	d.Receive(answerTo(q), noon, patience)
	ended := q
	ended.Instances = nil
	require.False(t, d.Told(ended))
	ended = d.Ask(ended, nil, noon)
	d.Receive(answerTo(ended), noon, patience)
	require.True(t, d.Told(ended))
}

func TestNoAnswerIsEverUsedTwiceOrLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &Dialog{}
		now := noon
		var sent []question.Question
		sentAt, used := map[uint64]time.Time{}, map[uint64]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if yes, _ := d.Due(asked().Question, now, patience); yes {
					q := d.Ask(asked().Question, asked().About, now)
					sent, sentAt[q.Number] = append(sent, q), now
				}
			case 1:
				if len(sent) > 0 {
					q := rapid.SampledFrom(sent).Draw(t, "answers")
					if end := d.Receive(answerTo(q), now, patience); end != nil && end.Failure == "" {
						require.False(t, used[q.Number])
						require.Equal(t, sent[len(sent)-1].Number, q.Number)
						require.LessOrEqual(t, now.Sub(sentAt[q.Number]), patience)
						used[q.Number] = true
					}
				}
			case 2:
				d.GiveUp(now, patience)
			}
		}
	})
}
