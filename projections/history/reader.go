package history

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog/logpb"
)

// reader reads the changes of a view. It caches the last block and metadata, as the next change often
// needs them. It is not safe for concurrent use.
type reader struct {
	s   *Store
	ctx context.Context
	*view
	block    block            // the last block that was used
	metadata *logpb.Metadata  // the last metadata that was decoded
	owner    seq              // the change whose record has that metadata
	ready    map[uint32]block // blocks that were read ahead
}

// Limits of reading ahead.
const (
	aheadChanges = 256
	aheadBytes   = 2 << 20  // of blocks in the file
	aheadMemory  = 16 << 20 // of blocks in memory, where one may be a thousand times larger
	atATime      = 8        // blocks that are read concurrently
)

// changes yields the changes of the given numbers whose object matches. It reads their blocks ahead: for
// one change at first, then for two, and so on, because the caller may want few.
func (r *reader) changes(numbers iter.Seq[seq], matches func(*logpb.Object) bool, yield func(*Change, error) bool) {
	var next []seq
	most := 1
	read := func() bool {
		r.readAhead(next)
		for _, at := range next {
			c, err := r.change(at)
			if err != nil {
				yield(nil, err)
				return false
			}
			if matches(c.Object) && !yield(c, nil) {
				return false
			}
		}
		next, most = next[:0], min(2*most, aheadChanges)
		return true
	}
	for at := range numbers {
		if next = append(next, at); len(next) == most && !read() {
			return
		}
	}
	read()
}

// readAhead reads the blocks of changes into r.ready. It ignores errors: the caller gets them when it
// reads the block itself.
func (r *reader) readAhead(changes []seq) {
	var numbers []uint32
	room := int64(aheadBytes)
	for _, at := range changes {
		if at >= r.tail.first || r.block.has(at) {
			continue
		}
		i := r.blockOf(at)
		if n := len(numbers); n > 0 && numbers[n-1] == i {
			continue
		}
		if room -= r.generation.blocks.get(i+1).offset() - r.generation.blocks.get(i).offset(); room < 0 {
			break
		}
		numbers = append(numbers, i)
	}
	r.ready = nil
	if len(numbers) < 2 {
		return
	}
	blocks := make([]block, len(numbers))
	var readers sync.WaitGroup
	var size atomic.Int64
	for first := range min(atATime, len(numbers)) {
		readers.Go(func() {
			for i := first; i < len(numbers) && size.Load() < aheadMemory; i += atATime {
				blocks[i], _ = r.s.block(r.ctx, r.view, numbers[i])
				size.Add(int64(blocks[i].size()))
			}
		})
	}
	readers.Wait()
	r.ready = make(map[uint32]block, len(numbers))
	for i, b := range blocks {
		if len(b.starts) > 0 {
			r.ready[numbers[i]] = b
		}
	}
}

func (r *reader) record(s seq) (record, error) {
	if !r.block.has(s) {
		number := r.view.blocks
		if s < r.tail.first {
			number = r.blockOf(s)
		}
		b, ok := r.ready[number]
		if !ok {
			var err error
			if b, err = r.s.block(r.ctx, r.view, number); err != nil {
				return record{}, err
			}
		}
		r.block = b
	}
	return r.block.record(s)
}

// meta returns the metadata of the event of s, given the record of s.
func (r *reader) meta(s seq, of record) (*logpb.Metadata, error) {
	at := s - of.back
	if r.metadata != nil && r.owner == at {
		return r.metadata, nil
	}
	if of.back > 0 {
		within := r.block
		var err error
		if of, err = r.record(at); err != nil {
			return nil, err
		}
		r.block = within
	}
	m := new(logpb.Metadata)
	if err := proto.Unmarshal(of.metadata, m); err != nil {
		return nil, err
	}
	r.metadata, r.owner = m, at
	return m, nil
}

// read returns the record of s, and the metadata of its event.
func (r *reader) read(s seq) (record, *logpb.Metadata, error) {
	of, err := r.record(s)
	if err != nil {
		return record{}, nil, err
	}
	m, err := r.meta(s, of)
	return of, m, err
}

// object returns the object that a change is about.
func (r *reader) object(s seq) (*logpb.Object, error) {
	record, m, err := r.read(s)
	if err != nil {
		return nil, err
	}
	object, _ := about(m, int(record.back))
	return object, nil
}

func (r *reader) change(s seq) (*Change, error) {
	record, m, err := r.read(s)
	if err != nil {
		return nil, err
	}
	c := &Change{Revision: r.revision(s), Time: r.time(s, record.time), Meta: m, Deleted: r.index.get(s).bits&deleted != 0, Request: slices.Clone(record.request), Kept: slices.Clone(record.kept)}
	c.Object, c.Previous = about(m, int(record.back))
	within := r.block
	for at := s; record.inherited; {
		if at = r.index.get(at).prev; at == 0 {
			break
		}
		if record, err = r.record(at); err != nil {
			return nil, err
		}
	}
	c.Payload = slices.Clone(record.payload)
	r.block = within
	return c, nil
}

func resourceOf(o *logpb.Object) schema.GroupResource {
	return schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}
}

func samePlace(a, b *logpb.Object) bool {
	return resourceOf(a) == resourceOf(b) && a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}
