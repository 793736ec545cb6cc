package proof

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"

	"github.com/transparency-dev/merkle/compact"
	merkleproof "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"stele.dev/stele/eventlog"
)

// Run is consecutive batches of a log, known by their hashes in the tree.
type Run struct {
	Before, After eventlog.Head // positions before the first and after the last batch
	Batches       uint64
	Tree          [][]byte // compact range of the batches' leaves, as in package compact
}

// Item is a batch of a log, or a gap in the place of batches that are not kept any more.
type Item struct {
	First uint64        // first revision of the batch; not set for a gap
	After eventlog.Head // position after it
	Gap   *Run          // nil for a batch
}

// Source is where a [Tree] reads a log. It MUST be safe for concurrent use.
type Source interface {
	// Segments returns the batches of the log's segments, in order, from the beginning of the log and without gaps.
	// The tree does not read these batches unless a proof needs them.
	Segments() ([]Run, error)
	// Read returns what follows a position, in order. If it returns none, the position was the tip. The position is the
	// beginning of a segment, or the end of an item, or not in a segment.
	Read(ctx context.Context, after eventlog.Head) ([]Item, error)
	// Batch returns the batch that follows a position, as it was written and checked.
	Batch(ctx context.Context, after eventlog.Head) (*eventlog.Parts, error)
}

// Errors of a [Tree] about what was asked for.
var (
	// ErrNoEvent reports that no event in the tree has the revision.
	ErrNoEvent = errors.New("no event has this revision")
	// ErrNoSize reports that the log has fewer batches than the size, or the size is 0.
	ErrNoSize = errors.New("the log has no tree of this size")
	// ErrForgotten reports that the batches are not kept any more that this event or tree needs.
	ErrForgotten = errors.New("it is not kept any more")
)

// pieceSize is the number of batches outside of segments whose hashes a tree keeps as one: it reads that many again
// for a proof. It is a power of two.
const pieceSize = 1 << 10

// Tree makes tree heads and proofs of a log. Each method first reads what is new in the log and in no segment. For a
// proof it reads the segments, or pieces of about a thousand batches, in which the event lies and the tree ends. The
// tree takes about two hundred bytes of memory for each. It is safe for concurrent use.
type Tree struct {
	keys   eventlog.Keys // nil for none
	source Source

	mu       sync.Mutex
	view     view // appended to; earlier copies stay valid
	segments int  // the first so many of the view's pieces are segments
}

// view is a tree at one size.
type view struct {
	pieces []piece         // of the first batches, without gaps
	open   []eventlog.Hash // hashes of the batches behind the pieces, fewer than pieceSize
	begin  uint64          // index of the first of them
	before eventlog.Head   // position before them
	tip    eventlog.Head   // position after them
}

// piece is a run of batches whose hashes can be read again.
type piece struct {
	index uint64 // of its first batch
	Run
}

func (p *piece) end() uint64 { return p.index + p.Batches }

// NewTree returns the tree of a log.
func NewTree(source Source, log eventlog.ID) *Tree {
	start := eventlog.Head{Log: log}
	return &Tree{source: source, view: view{before: start, tip: start}}
}

var factory = &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// catchUp reads what is new in the log, and returns the tree of all batches.
func (t *Tree) catchUp(ctx context.Context) (view, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := &t.view
	segments, err := t.source.Segments()
	if err != nil {
		return view{}, err
	}
	if len(segments) != t.segments { // the batches behind them are few, and read again
		start := eventlog.Head{Log: v.tip.Log}
		*v, t.segments = view{before: start, tip: start}, len(segments)
		for i := range segments {
			v.addRun(&segments[i])
		}
	}
	for {
		items, err := t.source.Read(ctx, v.tip)
		if err != nil || len(items) == 0 {
			return *v, err
		}
		for _, item := range items {
			if item.Gap != nil {
				v.close()
				v.addRun(item.Gap)
			} else {
				v.addBatch(item.After)
			}
		}
	}
}

// addRun appends a piece. There are no open batches.
func (v *view) addRun(run *Run) {
	p := piece{v.begin, *run}
	v.pieces = append(v.pieces, p)
	v.begin, v.before, v.tip = p.end(), run.After, run.After
}

// addBatch appends a batch.
func (v *view) addBatch(after eventlog.Head) {
	v.open = append(v.open, after.Hash)
	v.tip = after
	if v.size()%pieceSize == 0 {
		v.close()
	}
}

// close makes a piece of the open batches.
func (v *view) close() {
	if len(v.open) == 0 {
		return
	}
	r := factory.NewEmptyRange(v.begin)
	appendLeaves(r, v.open)
	run := &Run{Before: v.before, After: v.tip, Batches: uint64(len(v.open)), Tree: r.Hashes()}
	v.open = nil // a new slice: earlier views keep the old one
	v.addRun(run)
}

func (v *view) size() uint64 { return v.begin + uint64(len(v.open)) }

// appendLeaves appends the hashes of batches to a range.
func appendLeaves(r *compact.Range, batches []eventlog.Hash) {
	for i := range batches {
		must(r.Append(rfc6962.DefaultHasher.HashLeaf(batches[i][:]), nil))
	}
}

// must panics on errors that only a bug in this package can cause.
func must(err error) {
	if err != nil {
		panic("proof: " + err.Error())
	}
}

// request answers one call: it reads no piece twice.
type request struct {
	view
	source Source
	read   map[int][]Item
}

// start reads what is new in the log, and returns a request for a tree of a size; 0 stands for the whole log.
func (t *Tree) start(ctx context.Context, size *uint64) (*request, error) {
	v, err := t.catchUp(ctx)
	if err != nil {
		return nil, err
	}
	if *size == 0 {
		*size = v.size()
	}
	if *size == 0 || *size > v.size() {
		return nil, fmt.Errorf("%w: %d was asked for, it has %d batches", ErrNoSize, *size, v.size())
	}
	return &request{view: v, source: t.source, read: map[int][]Item{}}, nil
}

// items reads a piece; the open batches if i is the number of pieces.
func (r *request) items(ctx context.Context, i int) ([]Item, error) {
	if read, ok := r.read[i]; ok {
		return read, nil
	}
	at, want := r.before, uint64(len(r.open))
	if i < len(r.pieces) {
		at, want = r.pieces[i].Before, r.pieces[i].Batches
	}
	var read []Item
	for want > 0 {
		more, err := r.source.Read(ctx, at)
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			return nil, fmt.Errorf("%w: it ends at %v", eventlog.ErrDiverged, at)
		}
		for _, item := range more {
			n := uint64(1)
			if at = item.After; item.Gap != nil {
				n = item.Gap.Batches
			}
			if n > want {
				return nil, fmt.Errorf("%w: a gap that ends at %v", eventlog.ErrDiverged, at)
			}
			read = append(read, item)
			if want -= n; want == 0 {
				break
			}
		}
	}
	r.read[i] = read
	return read, nil
}

// pieceOf returns the number of the piece that has a batch, and the index of its first batch.
func (r *request) pieceOf(index uint64) (i int, begin, end uint64) {
	if index >= r.begin {
		return len(r.pieces), r.begin, r.size()
	}
	i = sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i].end() > index })
	return i, r.pieces[i].index, r.pieces[i].end()
}

// cover returns the compact range of batches [begin, end).
func (r *request) cover(ctx context.Context, begin, end uint64) (*compact.Range, error) {
	covered := factory.NewEmptyRange(begin)
	for covered.End() < end {
		i, first, next := r.pieceOf(covered.End())
		if i == len(r.pieces) {
			appendLeaves(covered, r.open[covered.End()-first:min(next, end)-first])
			continue
		}
		if appendNodes(covered, first, &r.pieces[i].Run, end) {
			continue
		}
		items, err := r.items(ctx, i)
		if err != nil {
			return nil, err
		}
		if err := appendItems(covered, first, items, end); err != nil {
			return nil, err
		}
	}
	return covered, nil
}

// appendNodes appends a run, which begins at index first, to a range as far as `end`. It reports false, and has
// appended less, if the run's hashes do not suffice.
func appendNodes(to *compact.Range, first uint64, run *Run, end uint64) bool {
	end = min(end, first+run.Batches)
	for i, id := range compact.RangeNodes(first, first+run.Batches, nil) {
		from, next := id.Coverage()
		if next <= to.End() || from >= end {
			continue
		}
		if from < to.End() || next > end {
			return false
		}
		node, err := factory.NewRange(from, next, [][]byte{run.Tree[i]})
		must(err)
		must(to.AppendRange(node, nil))
	}
	return true
}

// appendItems appends the items of a piece, which begins at index first, to a range as far as `end`.
func appendItems(to *compact.Range, first uint64, items []Item, end uint64) error {
	for _, item := range items {
		if first >= end {
			break
		}
		if item.Gap == nil {
			if first == to.End() {
				appendLeaves(to, []eventlog.Hash{item.After.Hash})
			}
			first++
			continue
		}
		if first+item.Gap.Batches > to.End() && !appendNodes(to, first, item.Gap, end) {
			return fmt.Errorf("%w: a tree that begins or ends among batches %d to %d", ErrForgotten, first, first+item.Gap.Batches-1)
		}
		first += item.Gap.Batches
	}
	return nil
}

// path makes the hashes of a proof.
func (r *request) path(ctx context.Context, nodes merkleproof.Nodes) ([][]byte, error) {
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		begin, end := id.Coverage()
		node, err := r.cover(ctx, begin, end)
		if err != nil {
			return nil, err
		}
		hashes[i] = node.Hashes()[0]
	}
	return nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
}

// head returns the head of a size.
func (r *request) head(ctx context.Context, size uint64) (TreeHead, error) {
	all, err := r.cover(ctx, 0, size)
	if err != nil {
		return TreeHead{}, err
	}
	root, err := all.GetRootHash(nil)
	must(err)
	newest, err := r.position(ctx, size)
	return TreeHead{Log: newest.Log, Size: size, Root: eventlog.Hash(root), Revision: newest.Revision, Batch: newest.Hash}, err
}

// position returns the position after the first batches, of which there are `size`.
func (r *request) position(ctx context.Context, size uint64) (eventlog.Head, error) {
	if size == r.size() {
		return r.tip, nil
	}
	i, at, end := r.pieceOf(size - 1)
	if i < len(r.pieces) && end == size {
		return r.pieces[i].After, nil
	}
	items, err := r.items(ctx, i)
	if err != nil {
		return eventlog.Head{}, err
	}
	for _, item := range items {
		if at++; item.Gap != nil {
			at += item.Gap.Batches - 1
		}
		if at == size {
			return item.After, nil
		} else if at > size {
			break
		}
	}
	return eventlog.Head{}, fmt.Errorf("%w: batch %d", ErrForgotten, size-1)
}

// Head returns the head of the tree of a size, which 0 stands for all batches in the log. Errors are [ErrNoSize] and
// those of the source.
func (t *Tree) Head(ctx context.Context, size uint64) (TreeHead, error) {
	r, err := t.start(ctx, &size)
	if err != nil {
		return TreeHead{}, err
	}
	return r.head(ctx, size)
}

// HeadAt returns the head of the tree whose newest batch has a revision. Errors are [ErrNoEvent], [ErrForgotten] and those of
// the source.
func (t *Tree) HeadAt(ctx context.Context, revision uint64) (TreeHead, error) {
	size := uint64(0)
	r, err := t.start(ctx, &size)
	if err != nil {
		return TreeHead{}, err
	}
	index, _, err := r.find(ctx, revision)
	if err != nil {
		return TreeHead{}, err
	}
	return r.head(ctx, index+1)
}

// SetKeys sets the keys that open contents for proofs. It is called before the first proof.
func (t *Tree) SetKeys(keys eventlog.Keys) { t.keys = keys }

// Inclusion proves that the event that has a revision is in the tree of a size; 0 stands for all batches. With
// contents the proof has the event's contents, as far as they are kept. Errors are [ErrNoEvent], [ErrNoSize] and
// those of the source.
func (t *Tree) Inclusion(ctx context.Context, revision, size uint64, contents bool) (*Inclusion, error) {
	r, err := t.start(ctx, &size)
	if err != nil {
		return nil, err
	}
	head, err := r.head(ctx, size)
	if err != nil {
		return nil, err
	}
	index, b, err := r.find(ctx, revision)
	if err != nil {
		return nil, err
	}
	if index >= size {
		return nil, fmt.Errorf("%w: %d is in batch %d, and the tree of size %d ends at revision %d", ErrNoEvent, revision, index, size, head.Revision)
	}
	nodes, err := merkleproof.Inclusion(index, size)
	must(err)
	path, err := r.path(ctx, nodes)
	if err != nil {
		return nil, err
	}
	p := &Inclusion{
		Format: InclusionFormat,
		Batch:  Batch{Index: index, Previous: b.Previous[:], Header: b.Header, Path: path},
		Head:   head.Text(),
	}
	return p, p.setEvent(ctx, b, revision, contents, t.keys)
}

// find returns the batch that has a revision, and its index.
func (r *request) find(ctx context.Context, revision uint64) (uint64, *eventlog.Parts, error) {
	if revision == 0 || revision > r.tip.Revision {
		return 0, nil, fmt.Errorf("%w: %d; the log has revisions up to %d", ErrNoEvent, revision, r.tip.Revision)
	}
	i := sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i].After.Revision >= revision })
	index, before := r.begin, r.before
	if i < len(r.pieces) {
		index, before = r.pieces[i].index, r.pieces[i].Before
	}
	items, err := r.items(ctx, i)
	if err != nil {
		return 0, nil, err
	}
	for _, item := range items {
		switch {
		case item.After.Revision < revision:
			if index++; item.Gap != nil {
				index += item.Gap.Batches - 1
			}
			before = item.After
			continue
		case item.Gap != nil:
			return 0, nil, fmt.Errorf("%w: the event of revision %d", ErrForgotten, revision)
		case item.First > revision:
			return 0, nil, fmt.Errorf("%w: %d is one of those that the log has declared lost", ErrNoEvent, revision)
		}
		b, err := r.source.Batch(ctx, before)
		if err == nil && b.Hash != item.After.Hash {
			err = fmt.Errorf("%w: revision %d", eventlog.ErrDiverged, b.First)
		}
		return index, b, err
	}
	return 0, nil, fmt.Errorf("%w: it ends before revision %d", eventlog.ErrDiverged, revision)
}

// Consistency proves that the tree of one size begins with the tree of a smaller one; to may be 0 for all batches.
// Errors are [ErrNoSize] and those of the source.
func (t *Tree) Consistency(ctx context.Context, from, to uint64) (*Consistency, error) {
	r, err := t.start(ctx, &to)
	if err != nil {
		return nil, err
	}
	if from == 0 || from > to {
		return nil, fmt.Errorf("%w: a tree of size %d does not begin with one of size %d", ErrNoSize, to, from)
	}
	earlier, err := r.head(ctx, from)
	if err != nil {
		return nil, err
	}
	later, err := r.head(ctx, to)
	if err != nil {
		return nil, err
	}
	nodes, err := merkleproof.Consistency(from, to)
	must(err)
	path, err := r.path(ctx, nodes)
	if err != nil {
		return nil, err
	}
	return &Consistency{Format: ConsistencyFormat, From: earlier.Text(), To: later.Text(), Path: path}, nil
}
