package core

import "context"

// TakeAllTurns takes the turns of large writes until done is called.
func (p *Pipeline) TakeAllTurns(ctx context.Context) (done func(), err error) {
	for range cap(p.largeWrites) {
		if _, err := p.takeTurn(ctx); err != nil {
			return nil, err
		}
	}
	return func() {
		for range cap(p.largeWrites) {
			<-p.largeWrites
		}
	}, nil
}
