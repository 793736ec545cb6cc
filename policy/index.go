package policy

// IndexBy returns the items of a list by a key. Of items with the same key it has the last.
func IndexBy[T any, K comparable](list []T, key func(*T) K) map[K]*T {
	all := make(map[K]*T, len(list))
	for i := range list {
		all[key(&list[i])] = &list[i]
	}
	return all
}
