package call

// Mode is what a request is run for. Whatever a stage does only for some runs, it asks the mode.
type Mode uint8

const (
	// Live is the run of a client's request. It may change the state, and it is recorded.
	Live Mode = iota
	// Dry is the run of a client's request with the option dryRun. It changes nothing.
	Dry
	// Explained is the run of a request that an explanation or a test of a bundle describes. It has a user and a tip from the
	// start, takes no seats and no memory, changes nothing and is not recorded.
	Explained
	// Replayed is the run of a past request under some policy. Only the stages that decide run, and nobody outside of the
	// policy is asked.
	Replayed

	part Mode = 1 << 7
)

// Part returns the mode of a request that is a part of a request in this mode, such as the delete of one object of a collection.
func (m Mode) Part() Mode { return m | part }

// IsPart reports whether the request is a part of another one, whose seats and record it shares.
func (m Mode) IsPart() bool { return m&part != 0 }

// Is reports whether m is a mode, or the mode of a part of a request in it.
func (m Mode) Is(of Mode) bool { return m&^part == of }

// OfClient reports whether a client sent the request and waits for its answer.
func (m Mode) OfClient() bool { return m.Is(Live) || m.Is(Dry) }

// SetDryRun makes the request a dry run if its options ask for one.
func (c *Call) SetDryRun(asked bool) {
	if asked && c.Mode.Is(Live) {
		c.Mode = Dry | c.Mode&part
	}
}
