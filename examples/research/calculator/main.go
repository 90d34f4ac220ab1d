// Command calculator is an agent that serves exact arithmetic: com.example.calculate.
package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"os/signal"
	"syscall"

	"capd"
)

// errorNotArithmetic is a code of this capability's own; a caller decides by it.
const errorNotArithmetic = 6000

type expression struct {
	Expression string `json:"expression" capd:"minLength=1,maxLength=200,description=Numbers, + - * / and parentheses, such as (2+3)*4"`
}

type value struct {
	Value string `json:"value" capd:"description=The exact value, as an integer or a fraction"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	calculate := capd.Func("com.example.calculate", "1.0.0", calculate,
		capd.Idempotent(), capd.Description("Evaluates arithmetic without rounding."))
	if err := capd.Serve(ctx, calculate); err != nil {
		fmt.Fprintln(os.Stderr, "calculator:", err)
		os.Exit(1)
	}
}

func calculate(_ context.Context, params expression) (value, error) {
	parsed, err := parser.ParseExpr(params.Expression)
	if err != nil {
		return value{}, &capd.CallError{Code: errorNotArithmetic, Message: "the expression cannot be parsed", Details: params}
	}
	result, err := evaluate(parsed)
	if err != nil {
		return value{}, &capd.CallError{Code: errorNotArithmetic, Message: err.Error(), Details: params}
	}
	return value{result.ExactString()}, nil
}

func evaluate(expression ast.Expr) (constant.Value, error) {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		if expression.Kind == token.INT || expression.Kind == token.FLOAT {
			return constant.MakeFromLiteral(expression.Value, expression.Kind, 0), nil
		}
	case *ast.ParenExpr:
		return evaluate(expression.X)
	case *ast.UnaryExpr:
		operand, err := evaluate(expression.X)
		if err == nil && (expression.Op == token.SUB || expression.Op == token.ADD) {
			return constant.UnaryOp(expression.Op, operand, 0), nil
		}
	case *ast.BinaryExpr:
		left, err := evaluate(expression.X)
		if err != nil {
			return nil, err
		}
		right, err := evaluate(expression.Y)
		if err != nil {
			return nil, err
		}
		switch expression.Op {
		case token.ADD, token.SUB, token.MUL:
			return constant.BinaryOp(left, expression.Op, right), nil
		case token.QUO:
			if constant.Sign(right) == 0 {
				return nil, fmt.Errorf("division by zero")
			}
			// As a fraction: integers would be cut.
			return constant.BinaryOp(constant.ToFloat(left), token.QUO, constant.ToFloat(right)), nil
		}
	}
	return nil, fmt.Errorf("only numbers, + - * / and parentheses are arithmetic")
}
