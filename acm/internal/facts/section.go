package facts

// section is everything one collector has contributed. Nil tables are unknown.
type section struct {
	members  *Table[Member]
	shards   *Table[Shard]
	election *Election
	raw      any
}
