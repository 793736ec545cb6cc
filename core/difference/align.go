package difference

import "encoding/json"

// alignAtMost bounds the table that alignment is found by; longer lists, once what they
// begin and end with alike is taken off, correspond by their indexes.
const alignAtMost = 1 << 18

// align pairs the items of two lists that correspond, in ascending order on both sides: those
// that are the same, as many as can be, and in the gaps between them those that are alike.
func align(from, to []any) (pairs [][2]int) {
	a, b := interned(from, to)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		pairs = append(pairs, [2]int{head, head})
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	endA, endB := len(a)-tail, len(b)-tail
	i, j := head, head
	same := longest(endA-head, endB-head, func(i, j int) bool { return a[head+i] == b[head+j] })
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

// gap pairs items of which none is the same as another: one for one if they are as many, else
// those that are alike. Where it would take too long to find out which are, they correspond by
// their indexes.
func gap(from, to []any, i, endI, j, endJ int) (pairs [][2]int) {
	n, m := endI-i, endJ-j
	fields := 0 // that are compared with those of each of the others
	for _, item := range from[i:endI] {
		o, _ := item.(map[string]any)
		fields += len(o)
	}
	if n == m || fields*m > 4*alignAtMost {
		for k := range min(n, m) {
			pairs = append(pairs, [2]int{i + k, j + k})
		}
		return pairs
	}
	for _, pair := range longest(n, m, func(x, y int) bool { return alike(from[i+x], to[j+y]) }) {
		pairs = append(pairs, [2]int{i + pair[0], j + pair[1]})
	}
	return pairs
}

// alike tells whether two values can be taken for the same thing, changed: objects that have
// at least half of their scalars in common.
func alike(a, b any) bool {
	x, ok1 := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if !ok1 || !ok2 {
		return false
	}
	scalars, common := 0, 0
	for name, value := range x {
		switch value.(type) {
		case map[string]any, []any:
			continue
		}
		scalars++
		switch other := y[name].(type) {
		case map[string]any, []any:
		default:
			if _, ok := y[name]; ok && other == value {
				common++
			}
		}
	}
	return scalars > 0 && 2*common >= scalars
}

// longest is the longest common subsequence, by dynamic programming: the pairs of indexes
// below n and m of which same holds.
func longest(n, m int, same func(i, j int) bool) (pairs [][2]int) {
	if n == 0 || m == 0 {
		return nil
	}
	if n*m > alignAtMost {
		for k := range min(n, m) {
			pairs = append(pairs, [2]int{k, k})
		}
		return pairs
	}
	row := m + 1
	table := make([]int32, (n+1)*row) // of what follows i and j
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

// interned gives items numbers, so that comparing them is cheap: the same for those that are
// encoded alike.
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
