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

// entry is the part of a change that is in memory. All fields but next are set before a reader can see the
// entry, and never change.
type entry struct {
	// prev is the previous version of the same name, even if that was deleted in between; jump is an
	// older one. The jumps form a skew-binary number system, so that any version is found in O(log n)
	// (Myers, Applicative random-access stacks, 1983).
	prev, jump seq
	// next is the next version; it is read and written atomically.
	next seq
	// Fingerprints of the object's namespace and name.
	space, name uint32
	// From the lowest bit on: the flags below, the rank of jump, and the fingerprint of the resource.
	bits uint32
}

const (
	deleted  = 1 << iota // flag: the object was deleted
	noObject             // flag: the change is about no object

	rankShift     = 2
	rankMask      = 31 << rankShift
	resourceMask  = 1<<32 - 1<<8
	entrySize     = 16 // on disk: prev, space, name, bits without rank
	maxChanges    = ^seq(0) - 1
	smallestTable = 1 << 10
	fullFifths    = 4 // a table grows when four fifths of it are in use
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

// fingerprint is a hash of an object's resource, namespace and name. Different objects may have the same:
// it finds candidates, and their records decide.
type fingerprint struct{ resource, space, name uint32 }

// printer makes fingerprints. They depend on the log's id, so that clients cannot choose names that
// collide.
type printer struct{ log eventlog.ID }

func (p printer) hash(s string) uint32 {
	var room [128]byte
	sum := sha256.Sum256(append(append(room[:0], p.log[:]...), s...))
	return binary.LittleEndian.Uint32(sum[:])
}

func (p printer) resource(r schema.GroupResource) uint32 {
	return p.hash(r.Resource+"/"+r.Group) & resourceMask
}

func (p printer) object(r schema.GroupResource, namespace, name string) fingerprint {
	return fingerprint{p.resource(r), p.hash(namespace), p.hash(name)}
}

func (e *entry) fingerprint() fingerprint { return fingerprint{e.bits & resourceMask, e.space, e.name} }

func (p fingerprint) hash() uint64 {
	h := (uint64(p.space)<<32 | uint64(p.name)) ^ uint64(p.resource)*0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// column is an array that grows without moving its items. One goroutine appends; readers may read the
// items whose number was published to them.
type column[T any] struct {
	chunks atomic.Pointer[[]*[chunkSize]T]
}

const chunkSize = 4 << 10

func (c *column[T]) get(i uint32) *T {
	return &(*c.chunks.Load())[i/chunkSize][i%chunkSize]
}

// place returns where the writer stores item i. i is at most the number of items.
func (c *column[T]) place(i uint32) *T {
	var chunks []*[chunkSize]T
	if p := c.chunks.Load(); p != nil {
		chunks = *p
	}
	if int(i/chunkSize) == len(chunks) {
		chunks = append(chunks, new([chunkSize]T)) // behind what any reader uses
		c.chunks.Store(&chunks)
	}
	return &chunks[i/chunkSize][i%chunkSize]
}

// index finds changes. One goroutine adds; readers need no lock.
type index struct {
	entries column[entry]
	// table has the seq of the newest change of every name. It uses open addressing, by the hash of the
	// fingerprint in that change's entry.
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

func (x *index) get(s seq) *entry { return x.entries.get(s) }

// candidates yields the newest change of each name with a fingerprint.
func (x *index) candidates(p fingerprint) iter.Seq[seq] {
	return func(yield func(seq) bool) {
		table := *x.table.Load()
		for i := p.hash(); ; i++ {
			s := atomic.LoadUint32(&table[i%uint64(len(table))])
			if s == 0 || x.get(s).fingerprint() == p && !yield(s) {
				return
			}
		}
	}
}

// add stores e, whose prev is set, as the entry of s. It reports whether prev was the newest change of its
// name; if not, it adds nothing.
func (x *index) add(s seq, e entry) bool {
	if e.bits&noObject != 0 {
		*x.entries.place(s) = e
		return true
	}
	slot, ok := x.slot(e.fingerprint(), e.prev)
	if !ok {
		return false
	}
	e.jump = s // the oldest version jumps to itself
	if e.prev != 0 {
		before := x.get(e.prev)
		e.jump = e.prev
		rank := uint32(1)
		if further := x.get(before.jump); before.rank() == further.rank() {
			e.jump, rank = further.jump, before.rank()+1
		}
		e.bits |= rank << rankShift
	}
	*x.entries.place(s) = e
	if e.prev != 0 {
		atomic.StoreUint32(&x.get(e.prev).next, s)
	}
	atomic.StoreUint32(slot, s)
	return true
}

// slot returns the slot of the table that contains prev, or an empty one if prev is 0.
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
		i := x.get(s).fingerprint().hash()
		for table[i%uint64(len(table))] != 0 {
			i++
		}
		table[i%uint64(len(table))] = s
	}
	x.table.Store(&table)
	return table
}

// upTo returns the newest version that is not after upto, of the name whose newest version is s; 0 if
// there is none.
func (x *index) upTo(s, upto seq) seq {
	for s > upto {
		e := x.get(s)
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

// alive reports whether e, a version up to upto, is an object's state at upto: it is not a deletion, and
// the next version is later.
func (e *entry) alive(upto seq) bool {
	next := e.after()
	return e.bits&(deleted|noObject) == 0 && (next == 0 || next > upto)
}
