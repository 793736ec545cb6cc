package archive

import (
	"sort"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Segment returns the segment that has the batch after a position; nil if the position is not before Tip. The error says
// why the segment is damaged. If segments are rewritten or dropped meanwhile, reads of the one that it returned fail with
// fs.ErrNotExist.
func (a *Archive) Segment(after eventlog.Head) (*segment.Segment, error) {
	slots := a.state.Load().slots
	i := sort.Search(len(slots), func(i int) bool { return slots[i].last > after.Revision })
	if i == len(slots) {
		return nil, nil
	}
	if err := slots[i].err; err != nil {
		return nil, slots[i].damage(err)
	}
	return slots[i].segment, nil
}
