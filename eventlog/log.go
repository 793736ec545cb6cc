package eventlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/turns"
)

// DefaultBatchLimit is the default of [Options.BatchLimit], in encoded bytes.
const DefaultBatchLimit = 1 << 20

// Options for [Open].
type Options struct {
	// Software is the name of the program, which the first event of a new log records.
	Software string
	// BatchLimit is the maximum size of a batch of several events in a new log; DefaultBatchLimit if 0.
	// An existing log has its own.
	BatchLimit int
	// Level is the format level of a new log; the first one if 0. An existing log has its own.
	Level uint32
	// Clock is the wall clock; time.Now if nil. It may jump: only [Log.SetClock] sets log time back.
	Clock func() time.Time
	// Elapsed is a clock that nobody can set, by which jumps of Clock are noticed. If it is nil, jumps
	// of time.Now are noticed, and those of any other Clock are accepted.
	Elapsed func() time.Duration
	// RecentBytes bounds the memory for the newest batches, which are kept for followers; 4 MiB if 0.
	RecentBytes int
	// Reads is the highest format level that this Log reads; [Format] if 0. Others are for tests of replicas with
	// different versions. Nothing is encoded differently at a level above Format.
	Reads uint32
	// SealsAlways lets keys seal whatever the format level in force is, and leaves closed what they do not open: those contents are nil. It
	// is for logs whose readers can do without contents.
	SealsAlways bool
}

// Log is one process's access to a log. See the package comment.
type Log struct {
	backend    Backend
	id         ID
	writer     ID
	batchLimit int
	clock      *clock
	first      *Batch // always in the backend
	archive    atomic.Pointer[Archive]
	appended   newest // for the archive
	reads      uint32
	level      atomic.Uint32 // in force at the newest known batch; 0 before any is known
	resumed    atomic.Bool   // at a checkpoint, so that level may be unknown
	turns      *turns.Turns
	work       work
	keys       Keys
	sealing    Keys // keys, as the level in force lets them seal
	// sealsAlways is Options.SealsAlways.
	sealsAlways bool

	mu sync.Mutex
	// newest is the time of the newest known batch, which ends at newestRevision. Every tip that a
	// caller appends to was read by this Log, so newest is never older than that tip.
	newest         time.Time
	newestRevision uint64
	// recent holds the newest known batches. Each continues the one before.
	recent      []*Batch
	recentBytes int
	recentMax   int
	// grown is closed and replaced when recent grows.
	grown chan struct{}
	// appending is closed when the append in progress has ended; nil if there is none.
	appending chan struct{}
}

// Reader is the part of a log that projections use.
type Reader interface {
	// Next returns the batches that follow position `after`, in order. It waits until there is at least
	// one or the context ends.
	Next(ctx context.Context, after Head) ([]*Batch, error)
	// CatchUp returns batches that follow position `after`, without waiting. If it returns some, there
	// may be more. If it returns none, `after` was the tip at some moment after the call began.
	CatchUp(ctx context.Context, after Head) ([]*Batch, error)
	// Back returns up to max batches that begin at revision `from` or earlier, the newest first, without
	// gaps. It returns fewer if there are no older ones.
	//
	// If what CatchUp, Next or Back would have to return is not kept any more, the error is a
	// [*ForgottenError].
	Back(ctx context.Context, from uint64, max int) ([]*Batch, error)
}

var _ Reader = (*Log)(nil)

// Open attaches to the log in the backend, or creates it by its first event. The caller still owns the
// backend.
func Open(ctx context.Context, backend Backend, o Options) (*Log, error) {
	o.BatchLimit = cmp.Or(o.BatchLimit, DefaultBatchLimit)
	o.RecentBytes = cmp.Or(o.RecentBytes, 4<<20)
	l := &Log{backend: backend, writer: newID(), clock: newClock(o.Clock, o.Elapsed), recentMax: o.RecentBytes, grown: make(chan struct{}), sealsAlways: o.SealsAlways}
	if l.reads = o.Reads; l.reads == 0 {
		l.reads = Format
	}
	pretend(l.reads)
	l.turns = turns.New(l.writer, l.leave)
	first, err := l.openFirst(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	created := first.Events[0].Meta.GetLogCreated()
	if created == nil || first.First != 1 || first.Previous != (Hash{}) {
		return nil, fmt.Errorf("open log: %w", &CorruptError{Revision: first.First, Reason: "the first event does not create a log"})
	}
	l.first, l.id, l.batchLimit = first, first.Log, int(created.GetBatchLimit())
	l.noteTime(first.Last(), first.Time)
	if err := l.checkLevel(first); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l.noteLevels(first)
	return l, nil
}

// openFirst reads the log's first batch, or appends it.
func (l *Log) openFirst(ctx context.Context, o Options) (*Batch, error) {
	for {
		begun := time.Now()
		answer, err := l.backend.Read(ctx, 1)
		if err != nil {
			return nil, err
		}
		l.turns.NoteRoundTrip(time.Since(begun))
		if _, err := DecodeHead(answer.Head); errors.As(err, new(*MarkedError)) {
			return nil, err
		}
		if len(answer.Batches) > 0 {
			return DecodeBatch(answer.Batches[0].First, answer.Batches[0].Value)
		}
		if len(answer.Head) > 0 {
			return nil, &CorruptError{Reason: "there is a head but no batch"}
		}
		if err := l.CheckClock(); err != nil {
			return nil, err
		}
		draft, err := draftOf(&logpb.Metadata{
			Type:   logpb.Type_TYPE_LOG_CREATED,
			Detail: &logpb.Metadata_LogCreated{LogCreated: &logpb.LogCreated{BatchLimit: uint64(o.BatchLimit), Software: o.Software}},
		})
		if err != nil {
			return nil, err
		}
		draft.level = o.Level
		batch, value := draft.place(Head{Log: newID()}, l.writer, newID(), l.Now(), l.clock.read())
		answer, err = l.settle(ctx, Proposal{To: batch.Head().Encode(), At: 1, Value: value})
		if err != nil {
			return nil, err
		}
		if answer.Applied {
			return draft.won(batch), nil
		}
	}
}

// ID returns the ID of the log.
func (l *Log) ID() ID { return l.id }

// Writer returns the ID of this writer, which is random for each process that opens the log.
func (l *Log) Writer() ID { return l.writer }

// BatchLimit returns the maximum size, in encoded bytes, of a draft of several entries. A single entry
// may be larger, up to the backend's limit.
func (l *Log) BatchLimit() int { return l.batchLimit }

// Exclusive reports whether this process is the only one that can write.
func (l *Log) Exclusive() bool { return l.backend.Limits().Exclusive }

// Start returns the position before the log's first batch.
func (l *Log) Start() Head { return Head{Log: l.id} }

// Append puts the draft into the log directly after position `after`, which should be the tip, and
// returns the batch that it became.
//
// If another writer was first, the batch is nil, and newer holds some or all of what follows `after`; the
// caller may check the draft against the new tip and try again. If [Refused] is true for the error, the
// draft is not in the log. If the context ends before the outcome is known, the error is
// [ErrUnknownOutcome]; until then Append repeats the proposal by itself.
func (l *Log) Append(ctx context.Context, after Head, d *Draft) (won *Batch, newer []*Batch, err error) {
	if d.size > maxEventsSize {
		return nil, nil, fmt.Errorf("%w: %d bytes before compression, limit is %d", ErrTooLarge, d.size, maxEventsSize)
	}
	if err := l.CheckClock(); err != nil {
		return nil, nil, err
	}
	return l.append(ctx, after, d, l.logTime())
}

// append implements Append, with the batch's log time.
func (l *Log) append(ctx context.Context, after Head, d *Draft, logTime time.Time) (won *Batch, newer []*Batch, err error) {
	if err := l.learnLevel(ctx); err != nil {
		return nil, nil, err
	}
	d.level = l.Level()
	batch, value := d.place(after, l.writer, newID(), logTime, l.clock.read())
	if max := l.backend.Limits().Value; len(value) > max {
		return nil, nil, fmt.Errorf("%w: %d bytes, limit is %d", ErrTooLarge, len(value), max)
	}
	var from []byte
	if after.Revision > 0 {
		from = after.Encode()
	}
	defer l.beginAppend()()
	proposal := Proposal{From: from, To: batch.Head().Encode(), At: batch.First, Value: value, Frees: d.frees}
	var turn turns.Append
	if !l.Exclusive() {
		turn = l.turns.Begin()
		proposal.Writer, proposal.RoundTrip, proposal.Stays, proposal.Skipped = l.writer, turn.RoundTrip, turn.Stays, turn.Skipped
	}
	answer, err := l.settle(ctx, proposal)
	if err != nil {
		return nil, nil, err
	}
	if !l.Exclusive() {
		l.turns.End(turn, answer.Applied)
	}
	if answer.Applied {
		d.won(batch)
		l.remember(after, []*Batch{batch})
		if l.Archive() != nil { // it will ask for the bytes soon
			l.appended.add(batch, value, d, l.recentMax)
		}
		return batch, nil, nil
	}
	if newer, err = l.missed(ctx, after, answer); err != nil {
		return nil, nil, err
	}
	if len(newer) == 0 {
		return nil, nil, &CorruptError{Revision: batch.First, Reason: "the backend holds the head that was expected, yet it did not append"}
	}
	if newer[0].Nonce == batch.Nonce { // an earlier attempt was applied
		d.won(batch)
		newer[0] = batch
		l.remember(after, newer)
		return batch, newer[1:], nil
	}
	l.remember(after, newer)
	return nil, newer, nil
}

// Turn returns how long a writer that has something to append should let others go first; 0 if it is its turn. The
// writer asks again when that time is over, or when changed is closed. An append out of turn is as safe, but takes the
// share of others. See package turns.
func (l *Log) Turn() (wait time.Duration, changed <-chan struct{}) {
	if l.Exclusive() {
		return 0, nil
	}
	news := l.backend.News(0)
	return l.turns.Wait(news.Line), news.Changed
}

// leave takes this writer out of the line of those who wait.
func (l *Log) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), turns.Longest)
	defer cancel()
	_ = l.backend.Leave(ctx, l.writer) // if it fails, the others wait for this writer once
}

// beginAppend makes Next wait until the returned function is called: an append also tells what follows the tip, and its
// own batch need not be decoded.
func (l *Log) beginAppend() (end func()) {
	done := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appending = done
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.appending == done {
			l.appending = nil
		}
		close(done)
	}
}

// afterAppend waits until no append is in progress.
func (l *Log) afterAppend(ctx context.Context) error {
	l.mu.Lock()
	appending := l.appending
	l.mu.Unlock()
	if appending == nil {
		return nil
	}
	select {
	case <-appending:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// missed returns what a writer at a position missed, given the answer to its append. It repeats reads until they
// succeed, because the append may be among what was missed.
func (l *Log) missed(ctx context.Context, after Head, answer Answer) ([]*Batch, error) {
	newer, err := l.follow(ctx, after, answer)
	for pause := time.Millisecond; err != nil && !IsFatal(err); pause = min(2*pause, time.Second) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		case <-time.After(pause):
		}
		newer, err = l.CatchUp(ctx, after)
	}
	return newer, err
}

// settle repeats a proposal until its outcome is known: an answer, or a refusal of the first attempt.
// The answer to a later attempt may contain the proposal's own batch.
func (l *Log) settle(ctx context.Context, p Proposal) (Answer, error) {
	pause := time.Millisecond
	for first := true; ; first = false {
		answer, err := l.backend.Append(ctx, p)
		if err == nil || first && Refused(err) {
			return answer, err
		}
		p.Again = true
		select {
		case <-ctx.Done():
			return Answer{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// Next implements [Reader]. It answers from memory if the position is recent, else from the backend.
func (l *Log) Next(ctx context.Context, after Head) ([]*Batch, error) {
	exclusive := l.Exclusive()
	for waited := false; ; waited = true {
		if waited && !exclusive {
			if err := l.afterAppend(ctx); err != nil {
				return nil, err
			}
		}
		batches, atTip, grown := l.atHand(after)
		if len(batches) > 0 {
			return batches, nil
		}
		if !atTip || waited && !exclusive {
			batches, err := l.CatchUp(ctx, after)
			if err != nil || len(batches) > 0 {
				return batches, err
			}
		}
		if exclusive {
			select {
			case <-grown:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		} else if err := l.backend.Wait(ctx, after.Revision+1); err != nil {
			return nil, err
		}
	}
}

// AtHand returns batches that follow position `after` and are in this process already. There may be more in the log.
func (l *Log) AtHand(after Head) []*Batch {
	batches, _, _ := l.atHand(after)
	return batches
}

// atHand is AtHand, with the other results of fromMemory.
func (l *Log) atHand(after Head) (batches []*Batch, atTip bool, grown <-chan struct{}) {
	batches, atTip, grown = l.fromMemory(after)
	if len(batches) > 0 || l.Exclusive() {
		return batches, atTip, grown
	}
	last := after
	for _, s := range l.backend.News(after.Revision + 1).Batches {
		b, err := l.decode(context.Background(), s, false)
		if err != nil || follows(last, b) != nil || b.sealed != nil {
			break // a read tells why, or opens it, which may take long
		}
		batches, last = append(batches, b), b.Head()
	}
	l.remember(after, batches)
	return batches, atTip, grown
}

// ReadHead returns the position after the newest batch, as it was at some moment after the call.
func (l *Log) ReadHead(ctx context.Context) (Head, error) {
	answer, err := l.backend.Read(ctx, math.MaxUint64) // the head, and no batch
	if err != nil {
		return Head{}, err
	}
	head, err := DecodeHead(answer.Head)
	if err == nil && head.Log != l.id {
		err = fmt.Errorf("%w: it is log %v", ErrDiverged, head.Log)
	}
	return head, err
}

// check decodes the batches of an answer, and checks that they and the head continue position `after`. If
// some may have been trimmed in between, the error is a [*gapError].
func (l *Log) check(ctx context.Context, after Head, answer Answer) ([]*Batch, error) {
	return l.checkAs(ctx, after, answer, true)
}

// checkAs is check. open says whether contents that are sealed are opened: who only compares hashes needs no keys.
func (l *Log) checkAs(ctx context.Context, after Head, answer Answer, open bool) ([]*Batch, error) {
	head, err := DecodeHead(answer.Head)
	if err != nil {
		return nil, err
	}
	if head.Revision < after.Revision || head.Log != l.id || head.Revision == after.Revision && head != after {
		return nil, fmt.Errorf("%w: it is at %v, this process at %v", ErrDiverged, head, after)
	}
	if head.Revision > after.Revision && len(answer.Batches) == 0 {
		return nil, &CorruptError{Revision: after.Revision + 1, Reason: "it is missing"}
	}
	batches := make([]*Batch, len(answer.Batches))
	for i, s := range answer.Batches {
		b, err := l.decode(ctx, s, open)
		if err != nil {
			return nil, err
		}
		if b.First > after.Revision+1 && b.Previous != after.Hash {
			return nil, &gapError{b}
		}
		if err := follows(after, b); err != nil {
			return nil, err
		}
		batches[i], after = b, b.Head()
	}
	if head.Revision < after.Revision || head.Revision == after.Revision && head != after {
		return nil, &CorruptError{Revision: after.Revision, Reason: "the head does not agree with it"}
	}
	return batches, nil
}

// follows returns an error if b cannot be the batch directly after a position.
func follows(after Head, b *Batch) error {
	return followsAs(after, b, b.Events[0].Meta.GetEpochStarted())
}

// followsAs returns an error if a batch cannot be the one directly after a position. started is what its first event
// says about an epoch.
func followsAs(after Head, b *Batch, started *logpb.EpochStarted) error {
	switch {
	case b.Log != after.Log:
		return &CorruptError{Revision: b.First, Reason: "it belongs to log " + b.Log.String()}
	case b.Previous != after.Hash:
		return fmt.Errorf("%w: revision %d does not continue what was read up to %d", ErrDiverged, b.First, after.Revision)
	}
	if started != nil {
		if b.Epoch != after.Epoch+1 || b.First != started.GetNext() || b.First <= after.Revision {
			return &CorruptError{Revision: b.First, Reason: "it starts an epoch that does not follow"}
		}
		return nil
	}
	if b.First != after.Revision+1 || b.Epoch != after.Epoch {
		return &CorruptError{Revision: b.First, Reason: fmt.Sprintf("revision %d of epoch %d is expected here", after.Revision+1, after.Epoch)}
	}
	return nil
}

// remember keeps batches that follow position `after` for followers.
func (l *Log) remember(after Head, batches []*Batch) {
	if len(batches) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := batches[len(batches)-1]
	l.noteTime(newest.Last(), newest.Time)
	l.noteLevels(batches...)
	if !continues(after, batches) {
		return // they are from an archive, which has forgotten some
	}
	if n := len(l.recent); n > 0 {
		tip := l.recent[n-1]
		if newest.Last() <= tip.Last() {
			return // the caller is behind
		}
		if tip.Head() != after {
			l.recent, l.recentBytes = nil, 0
		}
	}
	for _, b := range batches {
		l.recent = append(l.recent, b)
		l.recentBytes += b.plain
	}
	drop := 0
	for l.recentBytes > l.recentMax && drop < len(l.recent)-1 {
		l.recentBytes -= l.recent[drop].plain
		l.recent[drop] = nil
		drop++
	}
	l.recent = l.recent[drop:]
	close(l.grown)
	l.grown = make(chan struct{})
}

// fromMemory returns the batches in memory after the position, and whether the position is the end of
// the newest one. grown is closed when there are more.
func (l *Log) fromMemory(after Head) (batches []*Batch, atTip bool, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.recent); n > 0 && l.recent[n-1].Hash == after.Hash {
		return nil, true, l.grown
	}
	for i := len(l.recent) - 1; i >= 0; i-- {
		if b := l.recent[i]; b.Previous == after.Hash {
			return slices.Clone(l.recent[i:]), false, l.grown
		} else if b.Last() <= after.Revision {
			break
		}
	}
	return nil, false, l.grown
}

func newID() (id ID) {
	rand.Read(id[:]) // never fails
	return id
}

// IsFatal reports whether an error means that this process cannot read the log any further: the log is
// corrupt, newer than this version, encrypted under keys that it lacks, or another one, it does not have the batches that follow or not all of them, or it has moved.
func IsFatal(err error) bool {
	if err == nil {
		return false // of most calls, which then allocate nothing
	}
	var corrupt *CorruptError
	var unsupported *UnsupportedError
	var forgotten *ForgottenError
	var missing *MissingError
	return errors.Is(err, ErrDiverged) || errors.Is(err, ErrOvertaken) || errors.As(err, &corrupt) || errors.As(err, &unsupported) ||
		errors.As(err, &forgotten) || errors.As(err, &missing) || errors.As(err, new(*MarkedError)) || lasts(err)
}

// lasts reports whether an error says that a content can never be opened with the keys of this process.
func lasts(err error) bool {
	var key *KeyError
	return errors.As(err, &key) && key.Lasts
}
