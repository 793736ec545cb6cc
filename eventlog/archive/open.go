package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Open opens the folder. It reads the footers of all segments, removes what a crash has left, and logs every file that
// is damaged, missing, of another log, or there twice. Errors are those of the file system.
func Open(o Options) (*Archive, error) {
	o.SegmentRevisions = cmp.Or(o.SegmentRevisions, DefaultSegmentRevisions)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, DefaultSegmentBytes)
	o.CacheBytes = cmp.Or(o.CacheBytes, DefaultCacheBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Archive{o: o, writing: make(turn, 1), folder: folder{path: o.Dir, before: o.before}, cache: segment.NewCache(o.CacheBytes)}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return a, nil
}

func (a *Archive) open() (err error) {
	if a.sums, err = a.folder.readSums(); err != nil {
		return err
	}
	found, err := a.scan()
	if err != nil {
		return err
	}
	candidates, listed := a.chooseGenerations(found), a.listed(found)
	s := chain(append(candidates, listed...), a.o.Log)
	a.state.Store(s)
	for _, err := range a.Damaged() {
		a.o.Logger.Error("a segment of the log cannot be read", "error", err)
	}
	return a.completeSums(s)
}

// span names the revisions of a segment.
type span struct{ first, last uint64 }

// generations are the .log files of one span, by generation.
type generations map[uint32]string

// scan lists the .log files, and removes temporary files and .payloads files that never got a .log file.
func (a *Archive) scan() (map[span]generations, error) {
	entries, err := os.ReadDir(a.o.Dir)
	if err != nil {
		return nil, err
	}
	found := map[span]generations{}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	for _, e := range entries {
		name := e.Name()
		base := segment.NameOf(name)
		first, last, generation, ok := segment.ParseName(base)
		switch {
		case strings.HasSuffix(name, temporary):
			err = a.folder.remove(name)
		case ok && base+segment.LogFile == name:
			at := span{first, last}
			if found[at] == nil {
				found[at] = generations{}
			}
			found[at][generation] = name
		case ok && base+segment.PayloadsFile == name:
			if _, listed := a.sums[base+segment.LogFile]; !names[base+segment.LogFile] && !listed {
				err = a.folder.remove(name)
			}
		case name != sumsFile:
			a.o.Logger.Warn("the folder of the log's segments has a file that does not belong there", "file", a.folder.join(name))
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// chooseGenerations opens the newest generation of every span that is not damaged, and removes older ones, which a crash
// has left.
func (a *Archive) chooseGenerations(found map[span]generations) []slot {
	var slots []slot
	for at, generations := range found {
		numbers := make([]uint32, 0, len(generations))
		for g := range generations {
			numbers = append(numbers, g)
		}
		slices.Sort(numbers)
		slices.Reverse(numbers)
		var chosen *slot
		for _, g := range numbers {
			opened := a.openSlot(at, generations[g])
			switch {
			case chosen == nil || chosen.err != nil && opened.err == nil:
				if chosen != nil {
					a.o.Logger.Error("a rewritten segment is damaged, so that the one before it is used", "error", chosen.err)
				}
				chosen = &opened
			case chosen.err == nil:
				a.removeSegment(generations[g])
			}
		}
		slots = append(slots, *chosen)
	}
	return slots
}

// openSlot opens a segment. Whatever is wrong with it is the slot's error.
func (a *Archive) openSlot(at span, file string) slot {
	s := slot{first: at.first, last: at.last, file: file}
	opened, err := segment.Open(a.folder.join(file), a.cache)
	if err == nil && opened.Info().Log != a.o.Log {
		err = &foreignError{a.folder.join(file), opened.Info().Log, a.o.Log}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = &segment.DamagedError{File: a.folder.join(segment.NameOf(file) + segment.PayloadsFile), Reason: "it is missing"}
	}
	var path *os.PathError
	if errors.As(err, &path) {
		err = &segment.DamagedError{File: path.Path, Reason: path.Error()}
	}
	if s.err = err; err == nil {
		if sum, known := a.sums[file]; known {
			opened.SetSum(sum)
		}
		s.segment, s.info = opened, opened.Info()
	}
	return s
}

// foreignError reports a segment of another log. It is never removed or replaced.
type foreignError struct {
	file      string
	log, want eventlog.ID
}

func (e *foreignError) Error() string {
	return fmt.Sprintf("archive: %s is of log %v, not of log %v; move it to where it belongs", e.file, e.log, e.want)
}

// listed returns a damaged slot for every .log file that the list of hashes has and the folder has not.
func (a *Archive) listed(found map[span]generations) []slot {
	var missing []slot
	for name := range a.sums {
		base := segment.NameOf(name)
		first, last, _, ok := segment.ParseName(base)
		if ok && base+segment.LogFile == name && found[span{first, last}] == nil {
			missing = append(missing, slot{first: first, last: last, file: name, err: &segment.DamagedError{File: a.folder.join(name), Reason: "it is missing"}})
		}
	}
	return missing
}

// chain puts slots in order. Those that do not continue the ones before are damaged.
func chain(candidates []slot, log eventlog.ID) *state {
	slices.SortFunc(candidates, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last))
	})
	chosen := longest(candidates)
	s := new(state)
	for i, c := range candidates {
		if c.err == nil && !chosen[i] {
			c = c.damaged("its revisions are also in other segments, which are used; remove it")
			s.beyond = append(s.beyond, c)
			continue
		}
		s.add(c, log)
	}
	n := len(s.slots)
	for n > 0 && s.slots[n-1].err != nil {
		n--
	}
	s.slots, s.beyond = s.slots[:n:n], append(s.beyond, s.slots[n:]...)
	return s
}

// longest chooses among sorted slots that are not damaged: of those that overlap, the ones whose successors reach
// furthest. It returns which are chosen.
func longest(slots []slot) []bool {
	reach := make([]uint64, len(slots)) // the last revision of the chain that begins with a slot
	best := map[eventlog.Head]int{}     // slot that continues a position, with the furthest reach
	for i := len(slots) - 1; i >= 0; i-- {
		s := &slots[i]
		if s.err != nil {
			continue
		}
		reach[i] = s.last
		if next, ok := best[s.info.After]; ok {
			reach[i] = reach[next]
		}
		if other, ok := best[s.info.Before]; !ok || reach[i] >= reach[other] {
			best[s.info.Before] = i
		}
	}
	chosen := make([]bool, len(slots))
	last := uint64(0)
	for i := 0; i < len(slots); i++ {
		s := &slots[i]
		if s.err != nil || s.first <= last && last > 0 {
			continue
		}
		for at, ok := best[s.info.Before]; ok; at, ok = best[slots[at].info.After] {
			chosen[at], last = true, slots[at].last
		}
	}
	return chosen
}

// add appends a slot, or the place of what is missing before it.
func (s *state) add(c slot, log eventlog.ID) {
	for n := len(s.slots); n > 0 && s.slots[n-1].err != nil && s.slots[n-1].last >= c.first; n-- {
		if c.err != nil {
			s.beyond = append(s.beyond, c) // two damaged ones of the same revisions
			return
		}
		s.beyond, s.slots = append(s.beyond, s.slots[n-1]), s.slots[:n-1]
	}
	before := eventlog.Head{Log: log}
	var last *slot
	if n := len(s.slots); n > 0 {
		if last = &s.slots[n-1]; last.err == nil {
			before = last.info.After
		}
	}
	if c.err == nil && last != nil && last.err == nil {
		if reason := contradiction(&last.info, &c.info); reason != "" {
			c = c.damaged(reason)
		}
	}
	switch {
	case c.err == nil && last == nil && c.info.Before.Revision == 0 && c.info.Before != before:
		c = c.damaged("it does not begin the log")
	case last != nil && c.first <= last.last: // it overlaps
		s.beyond = append(s.beyond, c)
		return
	case c.err == nil && last != nil && c.info.Before.Revision > last.last:
		hole := slot{first: last.last + 1, last: c.info.Before.Revision}
		hole.file = segment.Name(hole.first, hole.last, 0) + segment.LogFile
		hole.err = &segment.DamagedError{File: hole.file, Reason: "the segment, or the segments, with these revisions are missing"}
		s.slots = append(s.slots, hole)
	}
	s.slots = append(s.slots, c)
}

// contradiction returns why a segment cannot be behind another one; "" if it can.
func contradiction(last, i *segment.Info) string {
	switch {
	case i.First <= last.Last:
		return fmt.Sprintf("its revisions are also in the segment up to revision %d", last.Last)
	case i.Before.Revision == last.Last && (i.Before != last.After || i.Ordinal != last.Ordinal+last.Batches):
		return "it does not continue the segment before it"
	case i.Before.Revision < last.Last || i.Ordinal < last.Ordinal+last.Batches:
		return fmt.Sprintf("it continues revision %d, although another segment ends at %d", i.Before.Revision, last.Last)
	}
	return ""
}

// damaged returns the slot as one that cannot be read.
func (s slot) damaged(reason string) slot {
	return slot{first: s.first, last: s.last, file: s.file, err: &segment.DamagedError{File: s.file, Reason: reason}}
}

// completeSums computes the hashes that the list lacks, and writes it if it is not what the folder has.
func (a *Archive) completeSums(s *state) error {
	list := sums{}
	for i := range s.slots {
		slot := &s.slots[i]
		if slot.segment == nil {
			continue
		}
		file := slot.info.Files[0]
		sum, known := a.sums[file.Name]
		if !known {
			var err error
			if sum, err = segment.Sum(slot.segment.Paths()[0]); err != nil {
				return err
			}
			slot.segment.SetSum(sum)
			slot.info = slot.segment.Info()
		}
		list[file.Name], list[slot.info.Files[1].Name] = sum, slot.info.Files[1].SHA256
	}
	for _, slots := range [][]slot{s.slots, s.beyond} { // what is missing stays in the list, so that it stays known
		for _, slot := range slots {
			if sum, known := a.sums[slot.file]; known && slot.err != nil {
				list[slot.file] = sum
			}
		}
	}
	if equalSums(list, a.sums) {
		return nil
	}
	a.sums = list
	return a.writeSums()
}

func equalSums(a, b sums) bool {
	if len(a) != len(b) {
		return false
	}
	for name, sum := range a {
		if other, ok := b[name]; !ok || other != sum {
			return false
		}
	}
	return true
}

// writeSums writes the list of hashes. After an error the next Seal does it.
func (a *Archive) writeSums() error {
	err := a.folder.writeSums(a.sums)
	if err == nil {
		err = a.folder.sync()
	}
	a.unlisted = err != nil
	return err
}

// removeSegment removes the files of a segment that is not used any more. Errors are logged: Open tries again.
func (a *Archive) removeSegment(file string) {
	name := segment.NameOf(file)
	for _, name := range []string{name + segment.LogFile, name + segment.PayloadsFile} {
		if err := a.folder.remove(name); err != nil {
			a.o.Logger.Warn("a file of an old segment cannot be removed", "error", err)
		}
	}
}
