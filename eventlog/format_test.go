package eventlog

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog/logpb"
)

var rewriteGolden = flag.Bool("rewrite-golden-log", false, "write testdata/golden-v1 anew; a released format level must never need it")

// golden is a backend that reads the files of testdata/golden-v1, one per key.
type golden struct {
	head    []byte
	batches []Stored
}

func (g *golden) Append(context.Context, Proposal) (Answer, error) {
	return Answer{}, fmt.Errorf("%w: read only", ErrUnavailable)
}
func (g *golden) Read(_ context.Context, from uint64) (Answer, error) {
	i := slices.IndexFunc(g.batches, func(s Stored) bool { return s.First >= from })
	if i < 0 {
		i = len(g.batches)
	}
	return Answer{Head: g.head, Batches: g.batches[i:]}, nil
}
func (g *golden) ReadBack(context.Context, uint64, int) ([]Stored, error) { return nil, nil }
func (g *golden) Wait(ctx context.Context, _ uint64) error                { <-ctx.Done(); return ctx.Err() }
func (g *golden) News(uint64) News                                        { return News{} }
func (g *golden) Leave(context.Context, ID) error                         { return nil }
func (g *golden) Trim(context.Context, uint64) error                      { return nil }
func (g *golden) Usage() Usage                                            { return Usage{} }
func (g *golden) Limits() Limits                                          { return Limits{} }
func (g *golden) Close() error                                            { return nil }

// The golden log has every kind of event and payload of the first version of format level 1. Every later
// version must decode it to the same transcript.
func TestGoldenLog(t *testing.T) {
	dir := filepath.Join("testdata", "golden-v1")
	if *rewriteGolden {
		writeGolden(t, dir)
	}
	g := &golden{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		name, isHex := strings.CutSuffix(e.Name(), ".hex")
		if !isHex {
			continue
		}
		value, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil {
			t.Fatal(err)
		}
		if name == "head" {
			g.head = value
			continue
		}
		s := Stored{Value: value}
		fmt.Sscanf(name, "%d", &s.First)
		g.batches = append(g.batches, s)
	}
	log, err := Open(t.Context(), g, Options{})
	if err != nil {
		t.Fatal(err)
	}
	batches, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	got := transcript(batches)
	file := filepath.Join(dir, "transcript.txt")
	if *rewriteGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
	if len(batches) == 0 || batches[len(batches)-1].Head().Encode() == nil {
		t.Error("no batches")
	}
}

func transcript(batches []*Batch) string {
	var w strings.Builder
	for _, b := range batches {
		fmt.Fprintf(&w, "batch %d..%d epoch %d\n  log %s writer %s nonce %s\n  time %s clock %s\n  previous %s\n  hash     %s\n",
			b.First, b.Last(), b.Epoch, b.Log, b.Writer, b.Nonce,
			b.Time.Format(time.RFC3339Nano), b.Clock.Format(time.RFC3339Nano), b.Previous, b.Hash)
		for _, e := range b.Events {
			text, err := protojson.Marshal(e.Meta)
			if err != nil {
				text = []byte(err.Error())
			}
			var compact bytes.Buffer // protojson's spaces are random
			if json.Compact(&compact, text) != nil {
				compact.Write(text)
			}
			fmt.Fprintf(&w, "  event %d..%d %s\n", e.Revision, e.Last(), &compact)
			for i, c := range e.Contents {
				if c == nil {
					fmt.Fprintf(&w, "    payload %d gone\n", i)
				} else {
					fmt.Fprintf(&w, "    payload %d %q\n", i, c)
				}
			}
		}
	}
	return w.String()
}

// writeGolden writes the golden log.
func writeGolden(t *testing.T, dir string) {
	id := func(b byte) (id ID) { return ID(bytes.Repeat([]byte{b}, len(id))) }
	at := time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC)
	widget := func(name string) *logpb.Object {
		return &logpb.Object{Group: "example.com", Resource: "widgets", Namespace: "default", Name: name, Uid: "0b8a1f6e-6f0c-4b56-a8a5-000000000001", Version: "v1", Kind: "Widget"}
	}
	alice := &logpb.Actor{User: "alice", Uid: "u1", Groups: []string{"team-widgets", "system:authenticated"}, Extra: []*logpb.Extra{{Key: "scopes", Values: []string{"a", "b"}}}}
	decisions := &logpb.Decisions{
		Authorizer: "rbac", Rule: "widgets/bindings/developers", Source: "teams/widgets.cue:31",
		Admission: []*logpb.Admission{{Rule: "widgets/mutate/stamp-owner", Source: "teams/widgets.cue:52", Action: "Mutate", Message: "owner"}},
		Warnings:  []string{"unknown field \"spec.colour\""},
	}
	digest := bytes.Repeat([]byte{0xd1}, 32)
	event := func(m *logpb.Metadata, payloads ...any) *Event {
		m.PolicyDigest, m.NodeDigest = digest, bytes.Repeat([]byte{0xd2}, 32)
		e := &Event{Meta: m}
		for i := 0; i < len(payloads); i += 2 {
			e.AddContent(payloads[i].(*logpb.Payload), []byte(payloads[i+1].(string)))
		}
		return e
	}
	object := func() *logpb.Payload { return &logpb.Payload{Role: logpb.Role_ROLE_OBJECT} }
	secret := func() *logpb.Payload {
		return &logpb.Payload{Role: logpb.Role_ROLE_OBJECT, Class: &logpb.Class{Retention: "short", Sensitive: true}}
	}
	groups := [][]*Event{
		{event(&logpb.Metadata{Type: logpb.Type_TYPE_LOG_CREATED, Detail: &logpb.Metadata_LogCreated{LogCreated: &logpb.LogCreated{BatchLimit: DefaultBatchLimit, Software: "stele golden"}}})},
		{
			event(&logpb.Metadata{Type: logpb.Type_TYPE_POLICY_CHUNK, Detail: &logpb.Metadata_PolicyChunk{PolicyChunk: &logpb.PolicyChunk{Digest: bytes.Repeat([]byte{0xc1}, 32)}}},
				&logpb.Payload{Role: logpb.Role_ROLE_CHUNK, MediaType: "application/octet-stream"}, "package platform\n"),
			event(&logpb.Metadata{Type: logpb.Type_TYPE_POLICY_PROPOSED, Actor: alice, Detail: &logpb.Metadata_PolicyProposed{PolicyProposed: &logpb.PolicyProposed{
				Digest: digest, SourceDigest: bytes.Repeat([]byte{0xd3}, 32), Compiler: "1", Language: "v0.17.0", Commit: "abc",
				Form:    &logpb.File{Path: "form.json", Size: 17, Chunks: [][]byte{bytes.Repeat([]byte{0xc1}, 32)}},
				Sources: []*logpb.File{{Path: "bundle.cue", Size: 17, Chunks: [][]byte{bytes.Repeat([]byte{0xc1}, 32)}}},
			}}}),
			event(&logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED, Actor: alice, Detail: &logpb.Metadata_PolicyActivated{PolicyActivated: &logpb.PolicyActivated{Digest: digest, ExpectedPrevious: bytes.Repeat([]byte{0xd0}, 32)}}}),
		},
		{
			event(&logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: widget("a"), Actor: alice, Decisions: decisions,
				Request: &logpb.Request{Verb: "create", UserAgent: "kubectl/v1.37.2", SourceIps: []string{"127.0.0.1"}, AuditId: "a-1", Uri: "/apis/example.com/v1/namespaces/default/widgets", ReceivedUnixNano: at.UnixNano(), FieldManager: "kubectl-create", Status: 201, MediaType: "application/json"}},
				object(), `{"spec":{"size":1,"color":"blue"}}`, &logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, `{"spec":{"size":1}}`),
			event(&logpb.Metadata{Type: logpb.Type_TYPE_UPDATED, Object: widget("a"), PreviousRevision: 5,
				Actor:   &logpb.Actor{User: "bob", Impersonator: alice},
				Request: &logpb.Request{Verb: "patch", Subresource: "status", AuditId: "a-2", Status: 200, MediaType: "application/merge-patch+json"}},
				object(), `{"spec":{"size":2}}`),
			event(&logpb.Metadata{Type: logpb.Type_TYPE_DELETED, Object: widget("a"), PreviousRevision: 6, Actor: alice}, object(), `{"spec":{"size":2}}`),
		},
		{
			event(&logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: widget("gone")}, secret(), `{"data":{"password":"c3RlbGU="}}`),
			event(&logpb.Metadata{Type: logpb.Type_TYPE_BULK_DELETED, Span: 3, Detail: &logpb.Metadata_Bulk{Bulk: &logpb.Bulk{Objects: []*logpb.BulkObject{
				{Object: widget("b"), PreviousRevision: 2}, {Object: widget("c"), PreviousRevision: 3}, {Object: widget("gone"), PreviousRevision: 8},
			}}}}),
			event(&logpb.Metadata{Type: 4711, Skippable: true}, object(), ""),
		},
		{event(&logpb.Metadata{Type: logpb.Type_TYPE_LEVEL_RAISED, Detail: &logpb.Metadata_LevelRaised{LevelRaised: &logpb.LevelRaised{Format: 1}}})},
		{event(&logpb.Metadata{Type: logpb.Type_TYPE_EPOCH_STARTED, Detail: &logpb.Metadata_EpochStarted{EpochStarted: &logpb.EpochStarted{LostFrom: 14, Next: 1000}}})},
		{event(&logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: widget("z")}, object(), `{"spec":{"size":9}}`)},
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, value []byte) {
		var text bytes.Buffer
		for line := range slices.Chunk(value, 40) {
			fmt.Fprintf(&text, "%x\n", line)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".hex"), text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tip := Head{Log: id(0x11)}
	for i, group := range groups {
		var entries []*Entry
		for _, e := range group {
			entry, err := Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, entry)
		}
		after := tip
		if started := group[0].Meta.GetEpochStarted(); started != nil {
			after.Epoch++
			after.Revision = started.GetNext() - 1
		}
		batch, value := NewDraft(entries).place(after, id(0x22), id(byte(0x30+i)), at.Add(time.Duration(i)*time.Second), at.Add(time.Duration(i)*time.Millisecond))
		if i == 3 {
			value = redact(t, value, 0)
		}
		if i == 6 {
			value = uncompress(t, value)
		}
		write(fmt.Sprintf("%020d", batch.First), value)
		tip = batch.Head()
	}
	write("head", tip.Encode())
}

// redact removes the content of the first payload of an event from a batch.
func redact(t testing.TB, value []byte, event int) []byte {
	return rewrite(t, value, func(events *logpb.Events) {
		blob := events.Entries[event].Blobs[0]
		sum := PayloadHash(blob.Salt, blob.Content)
		blob.Salt, blob.Content, blob.Hash, blob.Gone = nil, nil, sum[:], true
	}, true)
}

func uncompress(t testing.TB, value []byte) []byte {
	return rewrite(t, value, func(*logpb.Events) {}, false)
}

// rewrite changes the parts of a batch that are not hashed.
func rewrite(t testing.TB, value []byte, change func(*logpb.Events), compress bool) []byte {
	t.Helper()
	var pb logpb.Batch
	if err := proto.Unmarshal(value, &pb); err != nil {
		t.Fatal(err)
	}
	plain, err := decompress(&pb)
	if err != nil {
		t.Fatal(err)
	}
	var events logpb.Events
	if err := proto.Unmarshal(plain, &events); err != nil {
		t.Fatal(err)
	}
	change(&events)
	if plain, err = proto.Marshal(&events); err != nil {
		t.Fatal(err)
	}
	pb.Compression, pb.Events, pb.EventsSize = logpb.Compression_COMPRESSION_NONE, plain, uint64(len(plain))
	if compress {
		pb.Compression, pb.Events = logpb.Compression_COMPRESSION_ZSTD, encoder.EncodeAll(plain, nil)
	}
	value, err = proto.Marshal(&pb)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func entry(t testing.TB, m *logpb.Metadata, contents ...string) *Entry {
	t.Helper()
	e := &Event{Meta: m}
	for _, c := range contents {
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(c))
	}
	entry, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

func placed(t testing.TB, entries ...*Entry) (*Batch, []byte) {
	t.Helper()
	return NewDraft(entries).place(Head{Log: newID()}, newID(), newID(), time.Now(), time.Now())
}

func TestHashesOutliveContents(t *testing.T) {
	whole, value := placed(t, entry(t, &logpb.Metadata{Type: logpb.Type_TYPE_CREATED}, `{"password":"x"}`), entry(t, &logpb.Metadata{Type: logpb.Type_TYPE_CREATED}, "{}"))
	got, err := DecodeBatch(whole.First, redact(t, value, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash != whole.Hash {
		t.Error("the batch has another hash once a content is gone")
	}
	if got.Events[0].Contents[0] != nil || string(got.Events[1].Contents[0]) != "{}" {
		t.Errorf("contents %q and %q", got.Events[0].Contents[0], got.Events[1].Contents[0])
	}
}

func TestEqualContentsHaveDifferentHashes(t *testing.T) {
	a, b := entry(t, &logpb.Metadata{}, "same"), entry(t, &logpb.Metadata{}, "same")
	if a.leaf == b.leaf {
		t.Error("two events with the same bytes have the same leaf: their salts are equal")
	}
}

func TestUnknownEvents(t *testing.T) {
	for _, tc := range []struct {
		name string
		meta *logpb.Metadata
		ok   bool
	}{
		{"skippable", &logpb.Metadata{Type: 9999, Skippable: true}, true},
		{"not skippable", &logpb.Metadata{Type: 9999}, false},
	} {
		b, value := placed(t, entry(t, tc.meta))
		_, err := DecodeBatch(b.First, value)
		var unsupported *UnsupportedError
		if tc.ok && err != nil || !tc.ok && !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestNewerFormatIsRefusedByName(t *testing.T) {
	_, value := placed(t, entry(t, &logpb.Metadata{}))
	var pb logpb.Batch
	if err := proto.Unmarshal(value, &pb); err != nil {
		t.Fatal(err)
	}
	pb.Format = Format + 1
	value, _ = proto.Marshal(&pb)
	var unsupported *UnsupportedError
	if _, err := DecodeBatch(1, value); !errors.As(err, &unsupported) {
		t.Errorf("DecodeBatch = %v", err)
	}
	head := Head{Log: newID(), Revision: 1}.Encode()
	head[0]++
	if _, err := DecodeHead(head); !errors.As(err, &unsupported) {
		t.Errorf("DecodeHead = %v", err)
	}
}

func TestBulkEventTakesOneRevisionPerObject(t *testing.T) {
	b, value := placed(t, entry(t, &logpb.Metadata{Span: 3}), entry(t, &logpb.Metadata{}))
	got, err := DecodeBatch(b.First, value)
	if err != nil {
		t.Fatal(err)
	}
	if got.Events[0].Last() != 3 || got.Events[1].Revision != 4 || got.Last() != 4 {
		t.Errorf("revisions %d..%d, %d, last %d", got.Events[0].Revision, got.Events[0].Last(), got.Events[1].Revision, got.Last())
	}
}

// Decoding arbitrary bytes returns a batch or an error, and uses bounded memory.
func FuzzDecodeBatch(f *testing.F) {
	_, value := placed(f, entry(f, &logpb.Metadata{Type: logpb.Type_TYPE_CREATED}, `{"a":1}`))
	f.Add(value)
	f.Add(uncompress(f, value))
	f.Add(redact(f, value, 0))
	files, err := filepath.Glob("testdata/golden-v1/0*.hex")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		value, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		b, err := DecodeBatch(1, value)
		if err == nil && (b.Revisions == 0 || len(b.Events) == 0) {
			t.Errorf("a batch without events: %+v", b)
		}
		if err != nil && !IsFatal(err) {
			t.Errorf("error of another kind: %v", err)
		}
	})
}

func FuzzDecodeHead(f *testing.F) {
	f.Add(Head{Log: newID(), Epoch: 1, Revision: 2}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := DecodeHead(b); err == nil && !bytes.Equal(h.Encode(), b) && len(b) > 0 {
			t.Errorf("%x decodes to %v, which encodes to %x", b, h, h.Encode())
		}
	})
}
