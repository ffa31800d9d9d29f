package scenario

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"assent.dev/assent/test/e2e/load"
	"assent.dev/assent/test/e2e/record"
)

// Result is what a run must be judged by.
type Result struct {
	// Load is what the writer saw.
	Load load.Report
	// MostDownByUs is the largest number of members that were down at once because of an approval.
	MostDownByUs int
	// LeastUp is the smallest number of members that answered at once; Majority of Members is needed.
	LeastUp, Members, Samples int
	// Leaderless is the longest time in which no member named a leader.
	Leaderless time.Duration
	// LeaderEarly are grants of the leader's own step, by what etcd itself said at that moment, that were given while another
	// member still waited for the same revision.
	LeaderEarly []string
	// LeaderSteps are the grants of a step of a member that led at that moment.
	LeaderSteps int
	// Decisions by verdict, and deferrals and denials by reason code.
	Decisions, Codes map[string]int
	// Took is the whole run's time without setting up.
	Took time.Duration
}

// Err lists what is not as it must be; nil when all is.
func (r Result) Err() error {
	var all []error
	if r.Load.Acknowledged == 0 {
		all = append(all, errors.New("nothing was written, so nothing was proven"))
	}
	if n := len(r.Load.Lost); n > 0 {
		all = append(all, fmt.Errorf("%d acknowledged writes were lost, the first %s", n, r.Load.Lost[0]))
	}
	if r.MostDownByUs != 1 {
		all = append(all, fmt.Errorf("%d members were down at once by us, want 1", r.MostDownByUs))
	}
	if r.Samples == 0 {
		all = append(all, errors.New("no member was ever asked for its status, so the quorum was not watched"))
	}
	if need := r.Members/2 + 1; r.LeastUp < need {
		all = append(all, fmt.Errorf("only %d of %d members were up at one time, %d are a quorum", r.LeastUp, r.Members, need))
	}
	if r.Leaderless > electionLimit {
		all = append(all, fmt.Errorf("for %s no member named a leader, %s are allowed for an election", r.Leaderless, electionLimit))
	}
	if len(r.LeaderEarly) > 0 {
		all = append(all, fmt.Errorf("the leader's step was approved while others waited: %s", strings.Join(r.LeaderEarly, "; ")))
	}
	if r.LeaderSteps == 0 {
		all = append(all, errors.New("no step of a leader was seen, so leader-last was not proven"))
	}
	for _, verdict := range []string{"approve", "defer", "deny"} {
		if r.Decisions[verdict] == 0 {
			all = append(all, fmt.Errorf("the decision log holds no %s", verdict))
		}
	}
	return errors.Join(all...)
}

// electionLimit is far more than an election takes on a busy machine, and far less than a lost quorum would.
const electionLimit = 10 * time.Second

// readGrants fills the part of a result that the grants tell.
func (r *Result) readGrants(grants []record.Grant) {
	for _, g := range grants {
		if g.Leader != g.Pod {
			continue
		}
		r.LeaderSteps++
		if len(g.Waiting) > 0 {
			r.LeaderEarly = append(r.LeaderEarly, fmt.Sprintf("%s before %s", g.Pod, strings.Join(g.Waiting, ", ")))
		}
	}
}

// Print writes the table.
func (r Result) Print(out io.Writer) {
	row := func(what, is, want string) {
		_, _ = fmt.Fprintf(out, "  %-58s %-24s %s\n", what, is, want) // a broken terminal must not change the outcome
	}
	row("", "seen", "must be")
	row("acknowledged writes", fmt.Sprint(r.Load.Acknowledged), "> 0")
	row("lost writes", fmt.Sprint(len(r.Load.Lost)), "0")
	row("longest time without an acknowledgement", r.Load.LongestGap.Round(10*time.Millisecond).String(), "")
	row("most members down at once by us", fmt.Sprint(r.MostDownByUs), "1")
	row("fewest members up at once", fmt.Sprintf("%d of %d, in %d looks", r.LeastUp, r.Members, r.Samples), fmt.Sprintf(">= %d: quorum never lost", r.Members/2+1))
	row("longest time without a leader", r.Leaderless.Round(10*time.Millisecond).String(), fmt.Sprintf("< %s", electionLimit))
	row("steps granted to a leader", fmt.Sprint(r.LeaderSteps), "> 0")
	row("... while another member waited", fmt.Sprint(len(r.LeaderEarly)), "0")
	for _, verdict := range []string{"approve", "defer", "deny"} {
		row("decisions: "+verdict, fmt.Sprint(r.Decisions[verdict]), "> 0")
	}
	codes := make([]string, 0, len(r.Codes))
	for code := range r.Codes {
		codes = append(codes, code)
	}
	sort.Strings(codes)
	for _, code := range codes {
		row("  reason "+code, fmt.Sprint(r.Codes[code]), "")
	}
	row("time", r.Took.Round(100*time.Millisecond).String(), "")
}

// entry is what this page needs of a line of the ACM's decision log.
type entry struct {
	Result struct {
		Verdict string `json:"verdict"`
		Reasons []struct {
			Code string `json:"code"`
		} `json:"reasons"`
	} `json:"decision"`
}

// readDecisions fills the part of a result that the decision log tells.
func (r *Result) readDecisions(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the decision log: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	r.Decisions, r.Codes = map[string]int{}, map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("reading line %d of the decision log: %w", n, err)
		}
		r.Decisions[e.Result.Verdict]++
		for _, reason := range e.Result.Reasons {
			r.Codes[reason.Code]++
		}
	}
	return lines.Err()
}
