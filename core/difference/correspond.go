package difference

import "stele.dev/stele/schemas"

// Correspond pairs the items of two states of a list that are the same item, as [Between] sees
// it: the index in the first with that in the second. Indexes in the second ascend.
func Correspond(from, to []any, n *schemas.Node) (pairs [][2]int) {
	before, ok1 := Keyed(from, n)
	after, ok2 := Keyed(to, n)
	if ok1 && ok2 {
		at := make(map[string]int, len(from))
		for i, s := range before {
			at[Path{s}.String()] = i
		}
		for j, s := range after {
			if i, ok := at[Path{s}.String()]; ok {
				pairs = append(pairs, [2]int{i, j})
			}
		}
		return pairs
	}
	return align(from, to)
}
