package operation

import "fmt"

// at is one index of one set.
type at struct {
	set   string
	index int32
}

// budget is the operator's own hard cap, over one set or over the whole application. It does not know of policies.
type budget struct {
	// max is how many may be unavailable; at least 1.
	max int32
	// unavailable are the indices that have been available once and are not now, united with the removals in flight,
	// from whatever cause.
	unavailable map[at]bool
	// repairs are the removals in flight of pods that were unavailable already.
	repairs map[at]bool
}

func newBudget(limit int32) *budget {
	return &budget{max: max(limit, 1), unavailable: map[at]bool{}, repairs: map[at]bool{}}
}

// allows says whether one more pod may be taken down. A pod that is down already may be repaired without spending the
// budget twice, as long as fewer than max such repairs are in flight.
func (b *budget) allows(down bool) bool {
	if down && int32(len(b.repairs)) < b.max {
		return true
	}
	return int32(len(b.unavailable))+1 <= b.max
}

// spend counts a removal as in flight.
func (b *budget) spend(i at, repair bool) {
	b.unavailable[i] = true
	if repair {
		b.repairs[i] = true
	}
}

// caps are the budgets that a removal has to pass together.
type caps struct {
	sets        map[string]*budget
	application *budget
}

// allows says whether the index may be taken down now, and if not, which cap stands against it.
func (c *caps) allows(i at, down bool) (bool, string) {
	b := c.sets[i.set]
	if b == nil {
		return false, fmt.Sprintf("set %s is not known", i.set)
	}
	if !b.allows(down) {
		return false, fmt.Sprintf("%d of at most %d pods of set %s are unavailable or in flight; granted once one is available again",
			len(b.unavailable), b.max, i.set)
	}
	if !c.application.allows(down) {
		return false, fmt.Sprintf("%d of at most %d pods of the application are unavailable or in flight; granted once one is available again",
			len(c.application.unavailable), c.application.max)
	}
	return true, ""
}

func (c *caps) spend(i at, repair bool) {
	if b := c.sets[i.set]; b != nil {
		b.spend(i, repair)
	}
	c.application.spend(i, repair)
}

// miss counts an index that has been available once, is wanted and is not available.
func (c *caps) miss(i at) {
	if b := c.sets[i.set]; b != nil {
		b.unavailable[i] = true
	}
	c.application.unavailable[i] = true
}
