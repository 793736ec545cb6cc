package history

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
)

// seq numbers the changes of a log from 1 on; 0 is none. Unlike revisions they have no gaps.
type seq = uint32

// entry is what is kept in memory of a change. All but next is written before a reader can
// come across it, and never changes.
type entry struct {
	// prev is the version before of the same name, also across a deletion; jump is one still
	// further back. The jumps of a chain are those of a skew-binary number system: from any
	// version another one is found in O(log n) (Myers, Applicative random-access stacks, 1983).
	prev, jump seq
	// next is the version after; it is read and written atomically.
	next seq
	// Fingerprints of the object's namespace and name.
	space, name uint32
	// From the lowest bit on: what follows, the rank of jump, and the fingerprint of the resource.
	bits uint32
}

const (
	deleted  = 1 << iota // the object was
	noObject             // it is about none

	rankShift     = 2
	rankMask      = 31 << rankShift
	resourceMask  = 1<<32 - 1<<8
	entrySize     = 16 // on disk: prev, space, name, bits without rank
	maxChanges    = ^seq(0) - 1
	smallestTable = 1 << 10
	fullFifths    = 4 // a table grows when so many fifths of it are in use
)

func (e *entry) rank() uint32 { return e.bits & rankMask >> rankShift }

func (e *entry) after() seq { return atomic.LoadUint32(&e.next) }

func (e *entry) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, e.prev)
	to = binary.LittleEndian.AppendUint32(to, e.space)
	to = binary.LittleEndian.AppendUint32(to, e.name)
	return binary.LittleEndian.AppendUint32(to, e.bits&^rankMask)
}

func decodeEntry(b []byte) entry {
	u := binary.LittleEndian.Uint32
	return entry{prev: u(b), space: u(b[4:]), name: u(b[8:]), bits: u(b[12:]) &^ rankMask}
}

// fingerprint is the fingerprint of an object's place. Different ones may have the same, so it
// finds candidates, and what was written of them decides.
type fingerprint struct{ resource, space, name uint32 }

// printer makes fingerprints that nobody can foresee who does not know the log's id.
type printer struct{ log eventlog.ID }

func (p printer) of(s string) uint32 {
	var room [128]byte
	sum := sha256.Sum256(append(append(room[:0], p.log[:]...), s...))
	return binary.LittleEndian.Uint32(sum[:])
}

func (p printer) resource(r schema.GroupResource) uint32 {
	return p.of(r.Resource+"/"+r.Group) & resourceMask
}

func (p printer) object(r schema.GroupResource, namespace, name string) fingerprint {
	return fingerprint{p.resource(r), p.of(namespace), p.of(name)}
}

func (e *entry) fingerprint() fingerprint { return fingerprint{e.bits & resourceMask, e.space, e.name} }

func (p fingerprint) hash() uint64 {
	h := (uint64(p.space)<<32 | uint64(p.name)) ^ uint64(p.resource)*0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// column is an array that grows without being moved. One goroutine appends; readers may look
// at all that they were told of.
type column[T any] struct {
	chunks atomic.Pointer[[]*[chunkSize]T]
}

const chunkSize = 4 << 10

func (c *column[T]) at(i uint32) *T {
	return &(*c.chunks.Load())[i/chunkSize][i%chunkSize]
}

// place is where the writer puts the item at i, which is at most the first beyond the others.
func (c *column[T]) place(i uint32) *T {
	var chunks []*[chunkSize]T
	if p := c.chunks.Load(); p != nil {
		chunks = *p
	}
	if int(i/chunkSize) == len(chunks) {
		chunks = append(chunks, new([chunkSize]T)) // past what any reader holds
		c.chunks.Store(&chunks)
	}
	return &chunks[i/chunkSize][i%chunkSize]
}

// index finds changes. One goroutine adds; readers need no lock.
type index struct {
	entries column[entry]
	// table has for every name that there was the seq of its newest change: open addressing,
	// by the hash of the fingerprint in that change's entry.
	table atomic.Pointer[[]seq]
	names int
}

func newIndex() *index {
	x := &index{}
	table := make([]seq, smallestTable)
	x.table.Store(&table)
	*x.entries.place(0) = entry{bits: noObject}
	return x
}

func (x *index) at(s seq) *entry { return x.entries.at(s) }

// candidates are the newest changes of names with a fingerprint.
func (x *index) candidates(p fingerprint) iter.Seq[seq] {
	return func(yield func(seq) bool) {
		table := *x.table.Load()
		for i := p.hash(); ; i++ {
			s := atomic.LoadUint32(&table[i%uint64(len(table))])
			if s == 0 || x.at(s).fingerprint() == p && !yield(s) {
				return
			}
		}
	}
}

// add makes e, whose prev is known, the entry of s. It reports whether prev was the newest
// of its name: if not, nothing has been added.
func (x *index) add(s seq, e entry) bool {
	if e.bits&noObject != 0 {
		*x.entries.place(s) = e
		return true
	}
	slot, ok := x.slot(e.fingerprint(), e.prev)
	if !ok {
		return false
	}
	e.jump = s // of the oldest version: to itself, over nothing
	if e.prev != 0 {
		before := x.at(e.prev)
		e.jump = e.prev
		rank := uint32(1)
		if further := x.at(before.jump); before.rank() == further.rank() {
			e.jump, rank = further.jump, before.rank()+1
		}
		e.bits |= rank << rankShift
	}
	*x.entries.place(s) = e
	if e.prev != 0 {
		atomic.StoreUint32(&x.at(e.prev).next, s)
	}
	atomic.StoreUint32(slot, s)
	return true
}

// slot is where prev stands in the table, or if that is 0 an empty one.
func (x *index) slot(p fingerprint, prev seq) (*seq, bool) {
	table := *x.table.Load()
	if prev == 0 {
		if x.names++; 5*x.names > fullFifths*len(table) {
			table = x.grow(table)
		}
	}
	for i := p.hash(); ; i++ {
		slot := &table[i%uint64(len(table))]
		if *slot == prev {
			return slot, true
		}
		if *slot == 0 {
			return nil, false
		}
	}
}

func (x *index) grow(old []seq) []seq {
	table := make([]seq, 2*len(old))
	for _, s := range old {
		if s == 0 {
			continue
		}
		i := x.at(s).fingerprint().hash()
		for table[i%uint64(len(table))] != 0 {
			i++
		}
		table[i%uint64(len(table))] = s
	}
	x.table.Store(&table)
	return table
}

// upTo is the newest version at upto or before of the name whose newest is s; 0 if there
// was none.
func (x *index) upTo(s, upto seq) seq {
	for s > upto {
		e := x.at(s)
		switch {
		case e.prev == 0:
			return 0
		case e.jump > upto:
			s = e.jump
		default:
			s = e.prev
		}
	}
	return s
}

// alive tells whether e, at s, is what there is of an object at a moment.
func (e *entry) alive(upto seq) bool {
	next := e.after()
	return e.bits&(deleted|noObject) == 0 && (next == 0 || next > upto)
}
