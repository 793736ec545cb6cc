package difference

import (
	"encoding/json"
	"slices"

	"stele.dev/stele/schemas/jsonvalue"
)

// alignAtMost limits the table that aligns two lists. Longer lists, without their common beginning and end, are
// compared by index.
const alignAtMost = 1 << 18

// alikeAtMost limits the search for similar items, in compared scalars.
const alikeAtMost = 1 << 25

// align returns pairs of corresponding items of two lists, in ascending order on both sides: as many equal items as
// possible, and between them items that are similar.
func align(from, to []any) (pairs [][2]int) {
	head := 0
	for head < len(from) && head < len(to) && jsonvalue.Equal(from[head], to[head]) {
		pairs = append(pairs, [2]int{head, head})
		head++
	}
	tail := 0
	for tail < len(from)-head && tail < len(to)-head && jsonvalue.Equal(from[len(from)-1-tail], to[len(to)-1-tail]) {
		tail++
	}
	endA, endB := len(from)-tail, len(to)-tail
	var same [][2]int
	if endA-head > 1 || endB-head > 1 { // otherwise there is nothing to find
		a, b := interned(from[head:endA], to[head:endB])
		same = longest(len(a), len(b), func(i, j int) bool { return a[i] == b[j] })
	}
	i, j := head, head
	for _, pair := range append(same, [2]int{endA - head, endB - head}) {
		pairs = append(pairs, gap(from, to, i, head+pair[0], j, head+pair[1])...)
		if i, j = head+pair[0], head+pair[1]; i < endA && j < endB {
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		}
	}
	for k := range tail {
		pairs = append(pairs, [2]int{endA + k, endB + k})
	}
	return pairs
}

// gap pairs items that are all different: one by one if there are as many on both sides, else by similarity. If the
// search would take too long, it pairs them by index.
func gap(from, to []any, i, endI, j, endJ int) (pairs [][2]int) {
	n, m := endI-i, endJ-j
	if n == m {
		for k := range n {
			pairs = append(pairs, [2]int{i + k, j + k})
		}
		return pairs
	}
	if n == 0 || m == 0 {
		return nil
	}
	numbers := map[scalar]int{}
	a, most := scalars(from[i:endI], numbers)
	b, mostOfOthers := scalars(to[j:endJ], numbers)
	likeness := func(x, y int) bool { return alike(a[x], b[y]) }
	if n*m*max(1, most, mostOfOthers) > alikeAtMost {
		likeness = nil
	}
	for _, pair := range longest(n, m, likeness) {
		pairs = append(pairs, [2]int{i + pair[0], j + pair[1]})
	}
	return pairs
}

// scalar is a field of an object, and its value.
type scalar struct {
	name  string
	value any
}

// scalars returns the scalars of each item, as ascending numbers, and the largest count of an item.
func scalars(items []any, numbers map[scalar]int) (all [][]int, most int) {
	all = make([][]int, len(items))
	for i, item := range items {
		fields, _ := item.(map[string]any)
		for name, value := range fields {
			switch value.(type) {
			case map[string]any, []any:
				continue
			}
			n, ok := numbers[scalar{name, value}]
			if !ok {
				n = len(numbers)
				numbers[scalar{name, value}] = n
			}
			all[i] = append(all[i], n)
		}
		slices.Sort(all[i])
		most = max(most, len(all[i]))
	}
	return all, most
}

// alike reports whether two items are similar: they have at least half of the scalars of the first in common.
func alike(a, b []int) bool {
	common := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			common, i, j = common+1, i+1, j+1
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	return len(a) > 0 && 2*common >= len(a)
}

// longest returns the longest common subsequence, by dynamic programming: pairs of indexes below n and m for which
// same is true. If same is nil, or the search would take too long, it pairs equal indexes.
func longest(n, m int, same func(i, j int) bool) (pairs [][2]int) {
	if n == 0 || m == 0 {
		return nil
	}
	if same == nil || n*m > alignAtMost {
		for k := range min(n, m) {
			pairs = append(pairs, [2]int{k, k})
		}
		return pairs
	}
	row := m + 1
	table := make([]int32, (n+1)*row) // lengths for the rest after i and j
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if same(i, j) {
				table[i*row+j] = table[(i+1)*row+j+1] + 1
			} else {
				table[i*row+j] = max(table[(i+1)*row+j], table[i*row+j+1])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case same(i, j):
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case table[(i+1)*row+j] >= table[i*row+j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}

// interned numbers the items, so that they can be compared fast. Items with equal encoding get equal numbers.
func interned(from, to []any) (a, b []int) {
	numbers := map[string]int{}
	number := func(items []any) []int {
		list := make([]int, len(items))
		for i, item := range items {
			text, err := json.Marshal(item)
			if err != nil { // decoded JSON always encodes
				list[i] = -1 - i
				continue
			}
			n, ok := numbers[string(text)]
			if !ok {
				n = len(numbers)
				numbers[string(text)] = n
			}
			list[i] = n
		}
		return list
	}
	return number(from), number(to)
}
