package eventlog_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// keys seal contents of Secrets under a key with a name, by AES-GCM.
type keys struct {
	name string
	away bool // nothing can be opened or sealed at the moment
}

var errAway = errors.New("the key is away")

func (k *keys) aead() cipher.AEAD {
	block, err := aes.NewCipher([]byte(fmt.Sprintf("%-32s", k.name)))
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func (*keys) Seals(of eventlog.Kind) bool { return of.Resource == "secrets" || of.Sensitive }

func (k *keys) Seal(_ context.Context, _ eventlog.Kind, plain []byte) (string, []byte, error) {
	if k.away {
		return "", nil, errAway
	}
	return k.name, k.aead().Seal(nil, nil, plain, nil), nil
}

func (k *keys) Open(_ context.Context, _ eventlog.Kind, _ string, sealed []byte) ([]byte, bool, error) {
	if k.away {
		return nil, false, errAway
	}
	plain, err := k.aead().Open(nil, nil, sealed, nil)
	return plain, false, err
}

func (*keys) Temporary(err error) bool { return errors.Is(err, errAway) }

// sealing opens a log at the format level that lets contents be sealed.
func sealing(t *testing.T, store *memlog.Store, k eventlog.Keys) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{Software: "test", RecentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	log.SetKeys(k)
	if tip, _ := tipOf(t, log); log.Level() < 2 {
		entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{
			Type: logpb.Type_TYPE_LEVEL_RAISED, Detail: &logpb.Metadata_LevelRaised{LevelRaised: &logpb.LevelRaised{Format: 2}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{entry})); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// add appends an event about an object with a content.
func add(t *testing.T, log *eventlog.Log, resource string, content []byte) {
	t.Helper()
	e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{Resource: resource, Name: "x"}}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, content)
	entry, err := log.Encode(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	tip, _ := tipOf(t, log)
	if _, _, err := log.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{entry})); err != nil {
		t.Fatal(err)
	}
}

// contents are those of the events of all batches, as a reader with keys gets them.
func contents(t *testing.T, store *memlog.Store, k eventlog.Keys) (all []string, err error) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log.SetKeys(k)
	batches, err := log.CatchUp(t.Context(), log.Start())
	for _, b := range batches {
		for _, e := range b.Events {
			for _, content := range e.Contents {
				all = append(all, string(content))
			}
		}
	}
	return all, err
}

func TestContentsAreSealed(t *testing.T) {
	store := new(memlog.Store)
	log := sealing(t, store, &keys{name: "a"})
	want := []string{"low-entropy", "in plain", strings.Repeat("compressed ", 1000), ""}
	add(t, log, "secrets", []byte(want[0]))
	add(t, log, "configmaps", []byte(want[1]))
	add(t, log, "secrets", []byte(want[2]))
	add(t, log, "secrets", []byte(want[3]))
	got, err := contents(t, store, &keys{name: "a"})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, contents:\n%s", err, diff)
	}
	for _, stored := range store.Batches()[2:] {
		parts, err := eventlog.Split(stored.First, stored.Value)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range parts.Entries[0].Blobs {
			if sealed := parts.Entries[0].Resource == "secrets"; sealed != (b.KeyID == "a") || sealed != (len(b.Salt) == 0) || sealed != (len(b.Hash) > 0) || sealed && bytes.Contains(b.Content, []byte("low")) {
				t.Errorf("revision %d is stored as %q under %q, with a salt of %d bytes", stored.First, b.Content, b.KeyID, len(b.Salt))
			}
			if len(b.Content) > 500 {
				t.Errorf("revision %d takes %d bytes", stored.First, len(b.Content))
			}
		}
	}
}

func TestNothingIsSealedBelowTheLevel(t *testing.T) {
	store := new(memlog.Store)
	log := open(t, store.Open(nil))
	log.SetKeys(&keys{name: "a"})
	add(t, log, "secrets", []byte("x"))
	if got, err := contents(t, store, nil); err != nil || !slices.Equal(got, []string{"x"}) {
		t.Errorf("contents %q, error %v", got, err)
	}
}

func TestWithoutTheKeyNothingIsRead(t *testing.T) {
	store := new(memlog.Store)
	add(t, sealing(t, store, &keys{name: "a"}), "secrets", []byte("x"))
	for _, tc := range []struct {
		keys eventlog.Keys
		last bool
	}{{nil, true}, {&keys{name: "b"}, true}, {&keys{name: "a", away: true}, false}} {
		_, err := contents(t, store, tc.keys)
		key := (*eventlog.KeyError)(nil)
		if !errors.As(err, &key) || key.KeyID != "a" || key.Revision != 3 || eventlog.IsFatal(err) != tc.last {
			t.Errorf("keys %+v: error %v", tc.keys, err)
		}
	}
}

// A sealed content belongs to one event: at another place, or changed, it is not read.
func TestASealedContentStaysAtItsPlace(t *testing.T) {
	a := &keys{name: "a"}
	store := new(memlog.Store)
	log := sealing(t, store, a)
	add(t, log, "secrets", []byte("of the first"))
	add(t, log, "secrets", []byte("of the other"))
	whole := store.Batches()
	blob := func(stored eventlog.Stored) *eventlog.Blob {
		parts, err := eventlog.Split(stored.First, stored.Value)
		if err != nil {
			t.Fatal(err)
		}
		return &parts.Entries[0].Blobs[0]
	}
	first, other := blob(whole[2]), blob(whole[3])
	id, forged, err := a.Seal(t.Context(), eventlog.Kind{}, slices.Concat([]byte{0}, make([]byte, 16), []byte("of the forge")))
	if err != nil || id != "a" {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"that of another event": first.Content, "a forged one": forged, "a cut one": other.Content[:20], "none": nil} {
		parts, err := eventlog.Split(whole[3].First, whole[3].Value)
		if err != nil {
			t.Fatal(err)
		}
		parts.Entries[0].Blobs[0].Content = content
		var tampered memlog.Store
		tampered.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) {
			return parts.Head().Encode(), append(slices.Clone(whole[:3]), parts.Encode())
		})
		if got, err := contents(t, &tampered, a); err == nil {
			t.Errorf("%s is read: %q", name, got)
		}
	}
}

func TestNoFlippedBitChangesWhatIsSealed(t *testing.T) {
	a := &keys{name: "a"}
	store := new(memlog.Store)
	content := make([]byte, 40)
	rand.Read(content)
	add(t, sealing(t, store, a), "secrets", content)
	whole := store.Batches()
	last := len(whole) - 1
	head, err := eventlog.DecodeBatch(whole[last].First, whole[last].Value)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(whole[last].Value) {
		var damaged memlog.Store
		damaged.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) {
			b := slices.Clone(whole)
			b[last].Value = slices.Clone(b[last].Value)
			b[last].Value[bit/8] ^= 1 << (bit % 8)
			return head.Head().Encode(), b
		})
		if got, err := contents(t, &damaged, a); err == nil && !slices.Equal(got, []string{string(content)}) {
			t.Errorf("bit %d: not noticed, %q is read", bit, got)
		}
	}
}
