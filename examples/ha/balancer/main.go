// Command balancer gives TCP connections to the servers that are ready.
package main

import "stele.dev/stele/examples/ha/balance"

func main() { balance.Main() }
