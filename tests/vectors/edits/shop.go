//go:build linux || darwin

// Package shop sells... things.
package shop

/*
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	str "strings"
)

import _ "embed"

//go:embed prices.txt
var prices string

const Limit = 1

const (
	Small Size = iota + 1
	Large
)

var (
	ErrEmpty = errors.New("empty 1")
	count, total int
)

var first, second = 1, 1

type Size int

type Names = []string

// Basket holds items.
type Basket struct {
	Items []string `json:"items"`
	size  int // 1
}

type (
	Pricer interface {
		Price() int
	}
	Pair[K comparable, V any] struct {
		Key   K
		Value V
	}
)

// Add adds... an item.
func (b *Basket) Add(item string) error {
	// ... and counts it
	b.size += 1
	return nil
}

func (b Basket) Price() int {
	return len(b.Items) + 1
}

func (p Pair[K, V]) Price() int { return 1 }

func init() {
	count = 1
}

func Map[T any](items []T, f func(T) T) []T {
	for i := range items {
		items[i] = f(items[i+1-1])
	}
	return items
}

func Describe(b Basket) string {
	return str.ToUpper(fmt.Sprintf(`
'''
%d
`, b.Price()+1))
}
