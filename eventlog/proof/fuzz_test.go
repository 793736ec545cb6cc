package proof_test

import (
	"bytes"
	"testing"

	"stele.dev/stele/eventlog/proof"
)

// FuzzDecode checks that no document makes the decoders or Verify panic, that documents have one spelling, and that
// nothing but the tree's own proofs is proven.
func FuzzDecode(f *testing.F) {
	log, events := randomLog(f, 12, 30)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	head := headOf(f, tree, 0)
	valid := map[string]bool{}
	for _, e := range events {
		p, err := tree.Inclusion(f.Context(), e.Revision, 0, true)
		if err != nil {
			f.Fatal(err)
		}
		valid[string(p.Encode())] = true
		f.Add(p.Encode())
	}
	for from := uint64(1); from <= 30; from += 7 {
		p, err := tree.Consistency(f.Context(), from, 0)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.Encode())
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		if p, err := proof.DecodeInclusion(document); err == nil {
			if !bytes.Equal(p.Encode(), document) {
				t.Error("decoded from another spelling")
			}
			own, err := proof.ParseHead(proof.Body(p.Head))
			if err == nil {
				_, _ = p.Verify(own)
			}
			if _, err := p.Verify(head); err == nil && own == head && !valid[string(document)] && !withHashes(p, valid) {
				t.Errorf("proven:\n%s", document)
			}
		}
		if p, err := proof.DecodeConsistency(document); err == nil {
			if !bytes.Equal(p.Encode(), document) {
				t.Error("decoded from another spelling")
			}
			from, err := proof.ParseHead(proof.Body(p.From))
			if err == nil {
				_ = p.Verify(from, head)
			}
		}
	})
}

// withHashes reports whether p is a valid proof with another text around the same head, or with hashes in place of
// contents, which a fuzzer can make of a valid one.
func withHashes(p *proof.Inclusion, valid map[string]bool) bool {
	for document := range valid {
		v, err := proof.DecodeInclusion([]byte(document))
		if err == nil && v.Revision == p.Revision && bytes.Equal(v.Event.Metadata, p.Event.Metadata) && bytes.Equal(v.Batch.Header, p.Batch.Header) {
			return true
		}
	}
	return false
}
