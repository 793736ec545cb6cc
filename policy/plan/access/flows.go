package access

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/rights"
)

// maxMoves limits the moves of requests that a finding shows, and maxScopes the sets of requests in each.
const (
	maxMoves  = 8
	maxScopes = 3
)

// traffics are the flow schemas and priority levels in force, of both sides.
type traffics struct {
	from, to *flows.Table
	// moves are the sentences about requests that move to another level, by the flow schema that causes it.
	moves map[string][]string
	// exempted are the flow schemas that make requests exempt.
	exempted map[string]bool
}

// flows compares priority levels and flow schemas: what is of the bundle on one side at least.
func (c *comparison) flows() error {
	t := &traffics{from: flows.New(&c.from.Flow), to: flows.New(&c.to.Flow), moves: map[string][]string{}, exempted: map[string]bool{}}
	c.levels(t)
	changed := map[string]bool{}
	was, is := byID(t.from.Schemas()), byID(t.to.Schemas())
	for _, s := range t.from.Schemas() {
		changed[s.ID] = is[s.ID] == nil || text(&s.FlowSchema) != text(&is[s.ID].FlowSchema)
	}
	for _, s := range t.to.Schemas() {
		changed[s.ID] = changed[s.ID] || was[s.ID] == nil
	}
	if err := c.moves(t, changed); err != nil {
		return err
	}
	for _, s := range t.to.Schemas() {
		if changed[s.ID] {
			c.flowSchema(t, was[s.ID], s)
		}
	}
	for _, s := range t.from.Schemas() {
		if is[s.ID] == nil {
			c.flowSchema(t, s, nil)
		}
	}
	return nil
}

// text returns the values of an entry.
func text(x any) string {
	data, err := json.Marshal(plan.Plain(x, "checked"))
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return string(data)
}

func byID(list []*flows.Schema) map[string]*flows.Schema {
	all := map[string]*flows.Schema{}
	for _, s := range list {
		all[s.ID] = s
	}
	return all
}

// changed returns the sentence about an entry that is not the same on both sides. Entries that do not exist are nil.
func changed[T any](what string, was, is *T, builtin func(*T) bool) string {
	switch {
	case was == nil:
		return what + " is new."
	case is == nil:
		return what + " is gone."
	case builtin(was) && !builtin(is):
		return what + " replaces the built-in one."
	case builtin(is) && !builtin(was):
		return what + " is gone, and the built-in one of that name is in force again."
	}
	return what + " differs."
}

// flowSchema reports a flow schema that is not the same on both sides.
func (c *comparison) flowSchema(t *traffics, was, is *flows.Schema) {
	f := plan.Finding{Rule: "FLOW_CHANGED", Message: changed("The flow schema", was, is, func(s *flows.Schema) bool { return s.Builtin })}
	if was != nil {
		f.Path, f.Before, f.Was = was.ID, text(&was.FlowSchema), was.Source
	}
	if is != nil {
		f.Path, f.After, f.Source = is.ID, text(&is.FlowSchema), is.Source
	}
	f.Details = t.moves[f.Path]
	if n := len(f.Details) - maxMoves; n > 1 {
		f.Details = append(f.Details[:maxMoves:maxMoves], fmt.Sprintf("%d other sets of requests move, too.", n))
	}
	if len(f.Details) == 0 {
		f.Details = []string{"No requests move to another priority level."}
	}
	if t.exempted[f.Path] {
		f.Class = plan.Widens
		f.Fix = []string{"Check that these requests cannot become many: exempt ones never wait and are never rejected."}
	}
	c.add(f)
}

// moves finds the requests that move to another priority level.
func (c *comparison) moves(t *traffics, changed map[string]bool) error {
	known := map[policy.Subject]bool{}
	var subjects []policy.Subject
	rules := func(table *flows.Table) (list []*policy.FlowSchema) {
		for _, s := range table.Schemas() {
			list = append(list, &s.FlowSchema)
			for _, listed := range s.Subjects {
				for _, subject := range rights.Everyone(listed) {
					if !known[subject] {
						known[subject] = true
						subjects = append(subjects, subject)
					}
				}
			}
		}
		return list
	}
	was, is := rights.NewFlows(c.ctx, rules(t.from)), rights.NewFlows(c.ctx, rules(t.to))
	any := false
	for _, x := range changed {
		any = any || x
	}
	if !any {
		return nil
	}
	slices.SortFunc(subjects, func(a, b policy.Subject) int {
		return cmp.Or(cmp.Compare(len(b.Group), 0)-cmp.Compare(len(a.Group), 0), strings.Compare(rights.SubjectName(a), rights.SubjectName(b)))
	})
	for _, subject := range subjects {
		moves, err := rights.Moves(was, is, subject, func(from, to int) bool {
			return t.from.Schemas()[from].PriorityLevel == t.to.Schemas()[to].PriorityLevel
		})
		if errors.Is(err, rights.ErrIntricate) {
			for id := range changed {
				t.moves[id] = []string{"Which requests move to another priority level could not be computed: the flow schemas overlap in too many ways."}
			}
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range moves {
			from, to := t.from.Schemas()[m.From], t.to.Schemas()[m.To]
			id := to.ID
			if !changed[id] {
				id = from.ID
			}
			t.exempted[id] = t.exempted[id] || to.Level.Exempt
			t.moves[id] = append(t.moves[id], fmt.Sprintf("Requests of %s to %s use the priority level %s, and used %s.", rights.SubjectWords(m.Subject), scopesText(m.Scopes), levelOf(to), levelOf(from)))
		}
	}
	return nil
}

// levelOf names the priority level of a flow schema, and the flow schema.
func levelOf(s *flows.Schema) string {
	return fmt.Sprintf("%s (flow schema %s)", s.PriorityLevel, s.Name)
}

func scopesText(scopes []rights.Scope) string {
	var words []string
	for i := range scopes {
		if i == maxScopes && len(scopes) > maxScopes+1 {
			words = append(words, fmt.Sprintf("%d other sets of requests", len(scopes)-i))
			break
		}
		words = append(words, scopes[i].String())
	}
	return strings.Join(words, ", and to ")
}

// levels reports priority levels that are not the same on both sides.
func (c *comparison) levels(t *traffics) {
	was, is := map[string]*flows.Level{}, map[string]*flows.Level{}
	var names []string
	for _, l := range t.from.Levels() {
		was[l.Name] = l
		names = append(names, l.Name)
	}
	for _, l := range t.to.Levels() {
		is[l.Name] = l
		names = append(names, l.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	before, after := shares(t.from), shares(t.to)
	others := func(name string) string {
		var words []string
		for _, other := range names {
			if a, b := before[other], after[other]; other != name && was[other] != nil && is[other] != nil && a != b {
				words = append(words, fmt.Sprintf("%s %s instead of %s", other, b, a))
			}
		}
		if len(words) == 0 {
			return ""
		}
		return "The other levels: " + strings.Join(words, ", ") + "."
	}
	for _, name := range names {
		a, b := was[name], is[name]
		if a != nil && b != nil && text(&a.PriorityLevel) == text(&b.PriorityLevel) {
			continue
		}
		f := plan.Finding{Rule: "FLOW_CHANGED", Path: "flow/priorityLevels/" + name, Message: changed("The priority level", a, b, func(l *flows.Level) bool { return l.Builtin })}
		if a != nil {
			f.Before, f.Was = text(&a.PriorityLevel), a.Source
		}
		if b != nil {
			f.After, f.Source = text(&b.PriorityLevel), b.Source
		}
		f.Details = append(levelDetails(a, b, before[name], after[name]), others(name))
		f.Details = slices.DeleteFunc(f.Details, func(s string) bool { return s == "" })
		c.add(f)
	}
}

// levelDetails says what the change of a level means.
func levelDetails(was, is *flows.Level, before, after string) (details []string) {
	switch {
	case was == nil:
		return []string{"It has " + after + " of the seats."}
	case is == nil:
		return []string{"It had " + before + " of the seats."}
	case before != after:
		details = append(details, fmt.Sprintf("It has %s of the seats instead of %s.", after, before))
	case was.NominalConcurrencyShares != is.NominalConcurrencyShares:
		details = append(details, "Its part of the seats stays "+after+".")
	}
	if was.LendablePercent != is.LendablePercent {
		details = append(details, fmt.Sprintf("It lends up to %d%% of them while they are idle, instead of %d%%.", is.LendablePercent, was.LendablePercent))
	}
	borrowing := func(l *flows.Level) string {
		if l.BorrowingLimitPercent == nil {
			return "without a limit"
		}
		return fmt.Sprintf("up to %d%% of its own seats", *l.BorrowingLimitPercent)
	}
	if a, b := borrowing(was), borrowing(is); a != b {
		details = append(details, fmt.Sprintf("It borrows seats %s instead of %s.", b, a))
	}
	waiting := func(l *flows.Level) string {
		if l.Queuing == nil {
			return "no requests"
		}
		return fmt.Sprintf("%d requests in each of %d queues, of which a flow uses %d", l.Queuing.QueueLengthLimit, l.Queuing.Queues, l.Queuing.HandSize)
	}
	if a, b := waiting(was), waiting(is); a != b {
		details = append(details, fmt.Sprintf("There may wait %s, instead of %s.", b, a))
	}
	return details
}

// shares returns the part of the seats that each priority level has.
func shares(t *flows.Table) map[string]string {
	sum, list := 0, map[string]string{}
	for _, l := range t.Levels() {
		sum += l.NominalConcurrencyShares
	}
	for _, l := range t.Levels() {
		percent := strconv.FormatFloat(100*float64(l.NominalConcurrencyShares)/float64(max(sum, 1)), 'f', 1, 64)
		list[l.Name] = strings.TrimSuffix(percent, ".0") + "%"
	}
	return list
}
