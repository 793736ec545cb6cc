package admission

// InOrder lets n mutators change an object, one after the other, and asks those again that are reinvoked. As in
// kube-apiserver, that happens once, for a mutator that was asked about the object and after which another one changed it.
// run asks a mutator: asked says whether the object is one that it is about, changed whether it was changed.
func InOrder(n int, reinvoked func(i int) bool, run func(i, round int) (asked, changed bool, err error)) error {
	type state struct {
		asked bool // it saw the object
		stale bool // another mutator changed the object after this one had seen it
	}
	all := make([]state, n)
	for round := range 2 {
		for i := range all {
			m := &all[i]
			if round > 0 && (!m.stale || !reinvoked(i)) {
				continue
			}
			asked, changed, err := run(i, round)
			if err != nil {
				return err
			}
			m.asked, m.stale = m.asked || asked, false
			for j := range all {
				other := &all[j]
				other.stale = other.stale || changed && j != i && other.asked && (round > 0 || j < i)
			}
		}
	}
	return nil
}

// Reads reports whether the mutation reads stored objects.
func (m *Mutation) Reads() bool { return m.readsStored() }

// RunAll runs mutations, which are in their order, and again those that are reinvoked. It returns the steps that changed
// something. The error is as that of [Mutating.Run].
func (m *Mutating) RunAll(rules []Mutation) (applied []Applied, err error) {
	err = InOrder(len(rules), func(i int) bool { return rules[i].Reinvoke }, func(i, _ int) (asked, changed bool, err error) {
		steps, asked, err := m.Run(&rules[i])
		applied = append(applied, steps...)
		return asked, Changed(steps), err
	})
	return applied, err
}
