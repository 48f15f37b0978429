// Package sonnets is the text that examples train on: sonnets 18, 116 and 130 of William Shakespeare (1609), in the public domain.
package sonnets

import _ "embed"

//go:embed sonnets.txt
var Text string
