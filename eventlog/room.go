package eventlog

import "fmt"

// Usage is how much of its storage a backend uses, in bytes. Fields are 0 if unknown.
type Usage struct {
	// Used is what the stored batches take, with the store's own overhead.
	Used int64
	// Allocated is the size of the store's file. What is allocated and not used is used again.
	Allocated int64
	// Limit is the value of Used from which on appends are refused, except for those that free space
	// ([Proposal.Frees]). Those are refused from FreeingLimit on.
	Limit, FreeingLimit int64
	// DiskFree is the free space of the disk. Below DiskLimit, appends are refused, except for those that
	// free space. Those are refused below DiskFreeingLimit.
	DiskFree, DiskLimit, DiskFreeingLimit uint64
	// Lost says that the files of the store were deleted or replaced while it is open, and which; "" if they are there. All appends
	// are then refused with [ErrLost].
	Lost string
	// Refused is the number of appends that were refused for lack of space since the backend was opened.
	Refused uint64
}

// Full returns an error that is [ErrFull], and says what to do, if an append would be refused at this usage.
func (u Usage) Full() error {
	if err := u.isOver(u.Limit, u.DiskLimit); err != nil {
		return fmt.Errorf("%w; until then only deletes are accepted", err)
	}
	return nil
}

// DiskFull returns an error that is [ErrFull] if the disk has less room than appends need that free space. What can wait should
// then leave it to them, and to the parts that reads need.
func (u Usage) DiskFull() error { return u.isOver(0, u.DiskFreeingLimit) }

// FullForFreeing is like [Usage.Full] for an append that frees space.
func (u Usage) FullForFreeing() error { return u.isOver(u.FreeingLimit, u.DiskFreeingLimit) }

func (u Usage) isOver(limit int64, disk uint64) error {
	switch {
	case limit > 0 && u.Used >= limit:
		return fmt.Errorf("%w: the log's database has %s, the limit is %s; it shrinks by itself when older events move into segments, if not, the server's log says why; raising its quota helps at once",
			ErrFull, mebibytes(uint64(u.Used)), mebibytes(uint64(limit)))
	case u.DiskFree > 0 && u.DiskFree < disk:
		return fmt.Errorf("%w: the disk of the log's database has %s free, and must have %s; delete other files on it, or enlarge it",
			ErrFull, mebibytes(u.DiskFree), mebibytes(disk))
	}
	return nil
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
