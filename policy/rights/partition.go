package rights

import (
	"context"
	"errors"
	"slices"
)

// ErrIntricate says that a question would take too long: the rules divide its requests into too many
// parts.
var ErrIntricate = errors.New("the rules overlap in too many ways; ask about less")

// maxPieces limits the parts for one question: about one second of work with usual rules.
const maxPieces = 200_000

// partition divides boxes until each piece has the same claims for all of its requests, from one
// [Rights] or from two. It serves one question.
type partition struct {
	cuts []cut
	left int // remaining pieces of maxPieces
}

// covering is the claims about a piece, for each of the two rights.
type covering [2][]*claim

// cut is a box with the claims whose box equals it.
type cut struct {
	box    box
	claims covering
}

func newPartition(of covering) *partition {
	p := &partition{left: maxPieces}
	at := map[string]int{}
	for side, claims := range of {
		for _, c := range claims {
			k := c.box.key()
			i, found := at[k]
			if !found {
				i = len(p.cuts)
				at[k] = i
				p.cuts = append(p.cuts, cut{box: c.box})
			}
			p.cuts[i].claims[side] = append(p.cuts[i].claims[side], c)
		}
	}
	return p
}

// pieces calls piece for each piece of a box. The time depends on the number of rules and on their
// patterns, so it also ends with the context.
func (p *partition) pieces(ctx context.Context, of *box, piece func(*box, *covering)) error {
	var cuts []*cut
	for i := range p.cuts {
		if p.cuts[i].box.meets(of) {
			cuts = append(cuts, &p.cuts[i])
		}
	}
	return p.walk(ctx, of, cuts, &covering{}, piece)
}

func (p *partition) walk(ctx context.Context, b *box, open []*cut, by *covering, piece func(*box, *covering)) error {
	if p.left--; p.left < 0 {
		return ErrIntricate
	}
	for i, c := range open {
		if err := ctx.Err(); err != nil {
			return err
		}
		inside, rest := b.split(&c.box)
		if len(inside) == 0 {
			continue
		}
		more := &covering{slices.Concat(by[0], c.claims[0]), slices.Concat(by[1], c.claims[1])}
		if len(rest) == 0 && len(inside) == 1 {
			by = more
			continue
		}
		for j := range inside {
			if err := p.walk(ctx, &inside[j], open[i+1:], more, piece); err != nil {
				return err
			}
		}
		for j := range rest {
			if err := p.walk(ctx, &rest[j], open[i+1:], by, piece); err != nil {
				return err
			}
		}
		return nil
	}
	piece(b, by)
	return nil
}
