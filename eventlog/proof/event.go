package proof

import (
	"context"

	merkleproof "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"stele.dev/stele/eventlog"
)

// setEvent puts the event into the proof that has a revision in batch b.
func (p *Inclusion) setEvent(ctx context.Context, b *eventlog.Parts, revision uint64, contents bool, keys eventlog.Keys) error {
	at := 0
	for at+1 < len(b.Entries) && b.Entries[at+1].Revision <= revision {
		at++
	}
	leaves := make([]eventlog.Hash, len(b.Entries))
	hashes := make([][]eventlog.Hash, len(b.Entries))
	for i := range b.Entries {
		e := &b.Entries[i]
		for j := range e.Blobs {
			hash, err := e.Blobs[j].PayloadHash()
			if err != nil {
				return &eventlog.CorruptError{Revision: e.Revision, Reason: err.Error()}
			}
			hashes[i] = append(hashes[i], hash)
		}
		leaves[i] = eventlog.LeafHash(e.Metadata, hashes[i])
	}
	p.Revision = b.Entries[at].Revision
	p.Event = eventOf(b, at, leaves, hashes[at])
	if contents {
		blobs, err := b.Opened(ctx, at, keys)
		if err != nil {
			return err
		}
		for j, blob := range blobs {
			if !blob.Gone {
				p.Event.Payloads[j] = Payload{Salt: blob.Salt, Content: blob.Content}
			}
		}
	}
	if b.Revisions != uint64(len(b.Entries)) {
		for i := range at {
			p.Before = append(p.Before, eventOf(b, i, leaves, hashes[i]))
		}
	}
	return nil
}

// eventOf returns an event of a batch, with the path to the batch's root.
func eventOf(b *eventlog.Parts, at int, leaves, payloads []eventlog.Hash) Event {
	e := Event{Index: uint64(at), Metadata: b.Entries[at].Metadata, Payloads: make([]Payload, len(payloads))}
	for i := range payloads {
		e.Payloads[i].Hash = payloads[i][:]
	}
	nodes, err := merkleproof.Inclusion(uint64(at), uint64(len(leaves)))
	must(err)
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		begin, end := id.Coverage()
		r := factory.NewEmptyRange(begin)
		for _, leaf := range leaves[begin:end] {
			must(r.Append(leaf[:], nil))
		}
		hashes[i] = r.Hashes()[0]
	}
	e.Path, err = nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
	must(err)
	return e
}
