package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup/stores"
)

// Options for [Open].
type Options struct {
	Store stores.Store
	// Place is the name of the store, for errors.
	Place string
	// Log is the log.
	Log *eventlog.Log
	// Replace records this bucket in place of the one that the log has recorded.
	Replace bool
	// Patience is for the store.
	Patience stores.Patience
}

// Bucket is the shared place of one log. Its methods are safe for concurrent use.
type Bucket struct {
	store *stores.Patient
	place string
	log   eventlog.ID
	ids   []string // of the bucket: more than one if replicas were the first at the same time
}

// record is the value by which a log knows its bucket.
type record struct {
	ID    string `json:"id"`
	Place string `json:"place"`
}

// valueName is the name of the record among the values of the log's store.
const valueName = "bucket"

// ForeignError reports a bucket that belongs to another log.
type ForeignError struct {
	Place    string
	Log, Has string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the bucket %s belongs to log %s, and this is log %s: give this one a --bucket of its own", e.Place, e.Has, e.Log)
}

// OtherError reports a bucket that is not the one that the log has recorded.
type OtherError struct{ Place, Recorded string }

func (e *OtherError) Error() string {
	return fmt.Sprintf("the older part of this log is in the bucket %s, and %s is another one: give --bucket %s, or a complete copy of it; if that bucket is lost, start once with --replace-lost-bucket",
		e.Recorded, e.Place, e.Recorded)
}

// NeededError reports that a log has recorded a bucket, and none is given.
type NeededError struct{ Recorded string }

func (e *NeededError) Error() string {
	return fmt.Sprintf("the older part of this log is in the bucket %s: give --bucket %s", e.Recorded, e.Recorded)
}

// Recorded returns the place of the bucket that a log has recorded; "" if none.
func Recorded(ctx context.Context, log *eventlog.Log) (string, error) {
	r, _, err := readRecord(ctx, log)
	return r.Place, err
}

func readRecord(ctx context.Context, log *eventlog.Log) (r record, text []byte, err error) {
	text, err = log.Value(ctx, valueName)
	if err != nil || len(text) == 0 {
		return r, nil, err
	}
	if err := json.Unmarshal(text, &r); err != nil || r.ID == "" {
		return r, text, fmt.Errorf("the log's record of its bucket, %q, cannot be read", text)
	}
	return r, text, nil
}

// Open opens the bucket of a log, or makes an empty store the bucket of the log. It writes nothing to a bucket of another
// log. If other processes can read the log's store, the log records the bucket, so that no replica goes on without it;
// another bucket is then refused with an [*OtherError].
func Open(ctx context.Context, o Options) (*Bucket, error) {
	b := &Bucket{store: stores.WithPatience(o.Store, o.Patience), place: o.Place, log: o.Log.ID()}
	if err := b.readClaims(ctx); err != nil {
		return nil, err
	}
	var recorded record
	var text []byte
	if !o.Log.Exclusive() {
		var err error
		if recorded, text, err = readRecord(ctx, o.Log); err != nil {
			return nil, err
		}
	}
	if recorded.ID != "" && !slices.Contains(b.ids, recorded.ID) && !o.Replace {
		return nil, &OtherError{o.Place, recorded.Place}
	}
	if len(b.ids) == 0 {
		if err := b.claim(ctx); err != nil {
			return nil, err
		}
	}
	if o.Log.Exclusive() || slices.Contains(b.ids, recorded.ID) {
		return b, nil
	}
	return b, b.record(ctx, o.Log, text)
}

// record lets the log know its bucket, in place of what it has recorded.
func (b *Bucket) record(ctx context.Context, log *eventlog.Log, was []byte) error {
	text, err := json.Marshal(record{b.ids[0], b.place})
	if err != nil {
		return err
	}
	swapped, err := log.SwapValue(ctx, valueName, was, text)
	if err != nil {
		return fmt.Errorf("record the bucket in the log's store: %w", err)
	}
	if swapped {
		return nil
	}
	now, _, err := readRecord(ctx, log) // another replica was first
	if err == nil && !slices.Contains(b.ids, now.ID) {
		err = &OtherError{b.place, now.Place}
	}
	return err
}

const claims = "log/"

// readClaims finds out to whom the bucket belongs.
func (b *Bucket) readClaims(ctx context.Context) error {
	entries, err := b.store.List(ctx, claims)
	if err != nil {
		return fmt.Errorf("the bucket %s: %w", b.place, err)
	}
	b.ids = nil
	for _, e := range entries {
		log, id, ok := strings.Cut(strings.TrimPrefix(e.Name, claims), ".")
		if !ok {
			continue
		}
		if log != b.log.String() {
			return &ForeignError{Place: b.place, Log: b.log.String(), Has: log}
		}
		b.ids = append(b.ids, id)
	}
	slices.Sort(b.ids)
	return nil
}

// claim makes the bucket one of this log. If another log does the same, both find both claims, and refuse the bucket.
func (b *Bucket) claim(ctx context.Context) error {
	var id [16]byte
	rand.Read(id[:]) // never fails
	text := []byte("The segments and checkpoints of log " + b.log.String() + ". Do not change or remove files.\n")
	if err := b.store.Put(ctx, claims+b.log.String()+"."+hex.EncodeToString(id[:]), bytes.NewReader(text), int64(len(text))); err != nil {
		return fmt.Errorf("the bucket %s: %w", b.place, err)
	}
	return b.readClaims(ctx)
}

// Place returns the name of the bucket.
func (b *Bucket) Place() string { return b.place }

// Content is what a bucket has.
type Content struct {
	// Segments are the newest generations, ordered by their first revisions.
	Segments []Segment
	// Outdated are earlier generations of them.
	Outdated []Segment
	// Checkpoints are ordered by their revisions, the newest first.
	Checkpoints []Checkpoint
}

// List returns what the bucket has. Files of which something is missing are left out.
func (b *Bucket) List(ctx context.Context) (*Content, error) {
	entries, err := b.store.List(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("the bucket %s: %w", b.place, err)
	}
	sizes := map[string]int64{}
	for _, e := range entries {
		sizes[e.Name] = e.Size
	}
	c := &Content{}
	for name, size := range sizes {
		if s, ok := parseSegment(name); ok {
			paid, there := sizes[s.object(payloads)]
			_, floors := sizes[s.object(floorsFile)]
			if s.Size = size + paid; there && (floors || s.Generation == 0) {
				c.Segments = append(c.Segments, s)
			}
		} else if k, ok := parseCheckpoint(name); ok {
			k.Size = size
			c.Checkpoints = append(c.Checkpoints, k)
		}
	}
	slices.SortFunc(c.Segments, func(x, y Segment) int { // the newest generation first
		return cmp.Or(cmp.Compare(x.First, y.First), cmp.Compare(x.Last, y.Last), cmp.Compare(y.Generation, x.Generation), cmp.Compare(x.Sum, y.Sum))
	})
	c.choose()
	slices.SortFunc(c.Checkpoints, func(x, y Checkpoint) int {
		return cmp.Or(cmp.Compare(y.Revision, x.Revision), cmp.Compare(x.Sum, y.Sum))
	})
	c.Checkpoints = slices.CompactFunc(c.Checkpoints, func(x, y Checkpoint) bool { return x.Revision == y.Revision })
	return c, nil
}

// choose moves all but the newest generation of each segment to Outdated. Of the same generation of two replicas, one is
// chosen; the other one stays, because a replica may be about to fetch it, until the next generation comes.
func (c *Content) choose() {
	var chosen []Segment
	for _, s := range c.Segments {
		n := len(chosen)
		if n == 0 || chosen[n-1].First != s.First || chosen[n-1].Last != s.Last {
			chosen = append(chosen, s)
		} else if s.Generation < chosen[n-1].Generation {
			c.Outdated = append(c.Outdated, s)
		}
	}
	c.Segments = chosen
}

// Last returns the last revision of the newest segment; 0 if there is none.
func (c *Content) Last() (last uint64) {
	for i := range c.Segments {
		last = max(last, c.Segments[i].Last)
	}
	return last
}
