package eventlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"stele.dev/stele/eventlog/logpb"
)

// Keys seals contents before they are stored, and opens them again. Its methods are safe for concurrent use.
type Keys interface {
	// Seals reports whether contents of this kind are sealed from now on.
	Seals(of Kind) bool
	// Seal returns the sealed form of a content, and the ID of the key under which it is sealed, which is not secret.
	Seal(ctx context.Context, of Kind, plain []byte) (keyID string, sealed []byte, err error)
	// Open returns the content of a sealed form, and whether it would be sealed under another key, or not at all, from now on.
	Open(ctx context.Context, of Kind, keyID string, sealed []byte) (plain []byte, stale bool, err error)
	// Temporary reports whether an error of Seal or Open may go away by itself, because a key is kept by another program.
	Temporary(err error) bool
}

// Kind says of what a content is, as far as it decides on its key.
type Kind struct {
	// Group and Resource are those of the object; those of [PolicyKind] for parts of policies.
	Group, Resource string
	// Sensitive reports whether the content has fields that are secret by the policy under which it was written.
	Sensitive bool
}

// PolicyKind is the kind of the parts of policies.
var PolicyKind = Kind{Group: "policy.stele.dev", Resource: "policies"}

// LeaveSealed leaves contents that are sealed closed: a reader gets nil for them, as for those that are erased. It is for those who
// copy or verify a log, and MUST NOT be used by those who fold it.
var LeaveSealed Keys = leaving{}

type leaving struct{}

func (leaving) Seals(Kind) bool { return false }

func (leaving) Seal(context.Context, Kind, []byte) (string, []byte, error) {
	return "", nil, ErrNoKeys
}

func (leaving) Open(context.Context, Kind, string, []byte) ([]byte, bool, error) {
	return nil, false, ErrNoKeys
}

func (leaving) Temporary(error) bool { return false }

// kindOf returns the kind of a payload of an event.
func kindOf(m *logpb.Metadata, p *logpb.Payload) Kind {
	if p.GetRole() == logpb.Role_ROLE_CHUNK {
		return PolicyKind
	}
	return Kind{m.GetObject().GetGroup(), m.GetObject().GetResource(), p.GetClass().GetSensitive()}
}

// SealingLevel is the format level from which on contents are sealed. Versions that read less would take what is sealed for
// what is erased.
const SealingLevel = 2

// KeyError reports that a content cannot be opened. A reader that gets it has read nothing of the batch.
type KeyError struct {
	// Revision is where the content was written; 0 for a part of a checkpoint.
	Revision uint64
	KeyID    string
	Err      error
	// Lasts is set if it cannot go away by itself.
	Lasts bool
}

func (e *KeyError) Error() string {
	what := "a part of the checkpoint"
	if e.Revision > 0 {
		what = fmt.Sprintf("what was written at revision %d", e.Revision)
	}
	return fmt.Sprintf("%s is encrypted under %q and cannot be opened: %v", what, e.KeyID, e.Err)
}

// Unwrap returns the error of the keys.
func (e *KeyError) Unwrap() error { return e.Err }

// ErrNoKeys is the reason of a [KeyError] in a process that has no keys.
var ErrNoKeys = errors.New("no key is given: copy pki/encryption.yaml, or give the --encryption-provider-config, of the server that wrote it")

// seal seals what is in a blob, whose hash must be set.
func seal(ctx context.Context, keys Keys, of Kind, b *logpb.Blob, hash Hash) error {
	plain := make([]byte, 1, 1+saltSize+len(b.Content))
	if plain = append(plain, b.Salt...); len(b.Content) >= compressFrom {
		plain[0] = sealedZstd
		plain = encoder.EncodeAll(b.Content, plain)
	} else {
		plain = append(plain, b.Content...)
	}
	keyID, sealed, err := keys.Seal(ctx, of, plain)
	if err != nil {
		return fmt.Errorf("eventlog: encrypt the content: %w", err)
	}
	*b = logpb.Blob{Content: sealed, KeyId: keyID, Hash: hash[:]}
	return nil
}

// The first byte of what is sealed says what follows the salt: the content, or the content compressed.
const (
	sealedPlain = 0
	sealedZstd  = 1
	// compressFrom is the size from which on contents are compressed before they are sealed: afterwards they cannot be.
	compressFrom = 1 << 10
)

// open opens a blob that is sealed, and checks that its content is the one that the log is bound to.
func (b *Blob) open(ctx context.Context, keys Keys, of Kind) (plain Blob, stale bool, err error) {
	if keys == nil {
		return Blob{}, false, ErrNoKeys
	}
	opened, stale, err := keys.Open(ctx, of, b.KeyID, b.Content)
	if err != nil {
		return Blob{}, false, err
	}
	if len(opened) < 1+saltSize {
		return Blob{}, false, errOpened
	}
	plain.Salt, plain.Content = opened[1:1+saltSize], opened[1+saltSize:]
	switch opened[0] {
	case sealedPlain:
	case sealedZstd:
		if plain.Content, err = decoder.DecodeAll(plain.Content, []byte{}); err != nil {
			return Blob{}, false, errOpened
		}
	default:
		return Blob{}, false, errOpened
	}
	if hash := PayloadHash(plain.Salt, plain.Content); string(hash[:]) != string(b.Hash) {
		return Blob{}, false, errOpened
	}
	return plain, stale, nil
}

// errOpened reports a content that a key opens, and that is not the one whose hash the log has.
var errOpened = errors.New("it is not the content that was written")

// open opens the contents that are sealed; until then they are nil, as if they were erased. It is called before the batch is shared. lenient
// leaves what cannot be opened closed. Errors are [*KeyError].
func (b *Batch) open(ctx context.Context, keys Keys, lenient bool) error {
	if b.sealed == nil || keys == LeaveSealed {
		return nil
	}
	for i := range *b.sealed {
		s := &(*b.sealed)[i]
		e := b.Events[s.event]
		plain, _, err := s.blob.open(ctx, keys, kindOf(e.Meta, e.Meta.GetPayloads()[s.content]))
		if err != nil && lenient {
			continue
		}
		if err != nil {
			return &KeyError{Revision: e.Revision, KeyID: s.blob.KeyID, Err: err, Lasts: keys == nil || !keys.Temporary(err)}
		}
		if e.Contents[s.content] = plain.Content; plain.Content == nil {
			e.Contents[s.content] = []byte{}
		}
		b.plain += max(0, len(plain.Content)-len(s.blob.Content))
	}
	b.sealed = nil
	return nil
}

// Opened returns the blobs of an event, those that are sealed opened. Errors are [*KeyError].
func (p *Parts) Opened(ctx context.Context, event int, keys Keys) ([]Blob, error) {
	part := &p.Entries[event]
	blobs := slices.Clone(part.Blobs)
	for i := range blobs {
		if blobs[i].Gone || blobs[i].KeyID == "" {
			continue
		}
		e, err := part.decode(&p.Batch)
		if err != nil {
			return nil, err
		}
		plain, _, err := blobs[i].open(ctx, keys, kindOf(e.Meta, e.Meta.GetPayloads()[i]))
		if err != nil {
			return nil, &KeyError{Revision: part.Revision, KeyID: blobs[i].KeyID, Err: err, Lasts: keys == nil || !keys.Temporary(err)}
		}
		blobs[i] = plain
	}
	return blobs, nil
}

// Stale reports whether contents of the event of a revision are stored in another way than the keys would store them now: in plain,
// under another key, or sealed although they need not be.
func (l *Log) Stale(ctx context.Context, revision uint64) (bool, error) {
	if l.keys == nil {
		return false, nil
	}
	batches, err := l.back(ctx, revision, 1)
	if err != nil || len(batches) == 0 {
		return false, err
	}
	b := batches[0]
	at := slices.IndexFunc(b.Events, func(e *Event) bool { return e.Revision <= revision && revision <= e.Last() })
	if at < 0 {
		return false, nil
	}
	if b.sealed != nil {
		for i := range *b.sealed {
			s := &(*b.sealed)[i]
			if s.event != at {
				continue
			}
			of := kindOf(b.Events[at].Meta, b.Events[at].Meta.GetPayloads()[s.content])
			_, stale, err := s.blob.open(ctx, l.keys, of)
			if err != nil || stale || !l.sealing.Seals(of) {
				return true, err
			}
		}
	}
	for i, p := range b.Events[at].Meta.GetPayloads() {
		if b.Events[at].Contents[i] != nil && l.sealing.Seals(kindOf(b.Events[at].Meta, p)) {
			return true, nil // a content that is sealed is nil here
		}
	}
	return false, nil
}

// sealedContent is a content of an event, by its index in the batch, that is sealed.
type sealedContent struct {
	event, content int
	blob           Blob
}

// addSealed notes that a content is sealed.
func (b *Batch) addSealed(event, content int, blob *Blob) {
	if b.sealed == nil {
		b.sealed = new([]sealedContent)
	}
	*b.sealed = append(*b.sealed, sealedContent{event, content, Blob{Content: bytes.Clone(blob.Content), KeyID: blob.KeyID, Hash: bytes.Clone(blob.Hash)}})
}

// SetKeys sets what seals contents that are written, and opens those that are read. Without keys nothing is sealed, and a batch with
// something that is sealed is a [*KeyError]. It is called before anything is read or written, and not while
// others use the log.
func (l *Log) SetKeys(keys Keys) {
	l.keys, l.sealing = keys, nil
	if keys != nil {
		l.sealing = levelled{keys, l}
	}
}

// Keys returns the keys of the log: they seal nothing before the format level in force allows it. It is nil if the log has
// none.
func (l *Log) Keys() Keys { return l.sealing }

// levelled are keys that seal nothing before the log's level allows it.
type levelled struct {
	Keys
	log *Log
}

func (k levelled) Seals(of Kind) bool {
	return (k.log.sealsAlways || k.log.Level() >= SealingLevel) && k.Keys.Seals(of)
}

// Encode encodes and hashes an event, as [Encode] does, and seals those contents that the log's keys seal.
func (l *Log) Encode(ctx context.Context, e *Event) (*Entry, error) { return encode(ctx, e, l.Keys()) }

// salt returns n random salts.
func salt(n int) []byte {
	salts := make([]byte, saltSize*n)
	rand.Read(salts) // never fails
	return salts
}
