package proof

import (
	"fmt"

	merkleproof "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// Consistency proves that the tree of a head begins with the whole tree of an earlier head: in between the log was
// only appended to.
type Consistency struct {
	Format string `json:"format"`
	// From and To are the tree heads, signed or not.
	From string `json:"from"`
	To   string `json:"to"`
	// Path is the consistency proof of RFC 6962, section 2.1.2; empty if the sizes are equal.
	Path [][]byte `json:"path"`
}

// Encode returns the proof as a document.
func (p *Consistency) Encode() []byte { return encode(p) }

// normalize implements document.
func (p *Consistency) normalize() { nonNil(&p.Path) }

// DecodeConsistency decodes a document of [Consistency.Encode], in exactly that spelling. It verifies nothing.
func DecodeConsistency(document []byte) (*Consistency, error) {
	p := new(Consistency)
	if err := decode(document, p); err != nil {
		return nil, err
	}
	if p.Format != ConsistencyFormat {
		return nil, fmt.Errorf("malformed proof: its format is %q, not %s", p.Format, ConsistencyFormat)
	}
	return p, nil
}

// Verify checks that the proof leads from one head to another, both of which the caller trusts to be heads that the
// log has published. Errors are [ErrInvalid], or say what is malformed.
func (p *Consistency) Verify(from, to TreeHead) error {
	for _, h := range []struct {
		text string
		want TreeHead
	}{{p.From, from}, {p.To, to}} {
		own, err := ParseHead(Body(h.text))
		if err != nil {
			return err
		}
		if own != h.want {
			return fmt.Errorf("%w: it is for a head of size %d with root %v, not for that of size %d with root %v", ErrInvalid, own.Size, own.Root, h.want.Size, h.want.Root)
		}
	}
	if err := checkPath(p.Path); err != nil {
		return err
	}
	if from.Log != to.Log {
		return fmt.Errorf("%w: the heads are of logs %v and %v", ErrInvalid, from.Log, to.Log)
	}
	if from.Size > to.Size {
		return fmt.Errorf("%w: the earlier head has size %d, more than the later one's %d", ErrInvalid, from.Size, to.Size)
	}
	if from.Size == to.Size && from.Revision > 0 && to.Revision > 0 && from != to {
		return fmt.Errorf("%w: the log has published two heads of size %d that differ", ErrInvalid, from.Size)
	}
	if err := merkleproof.VerifyConsistency(rfc6962.DefaultHasher, from.Size, to.Size, p.Path, from.Root[:], to.Root[:]); err != nil {
		return fmt.Errorf("%w: the later tree does not begin with the earlier one", ErrInvalid)
	}
	return nil
}
