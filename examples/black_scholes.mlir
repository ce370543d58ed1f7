// Prices of a million European calls and puts, by Black and Scholes: spot price, strike, years to go and volatility of each; the
// interest rate is 3 %.
func.func @main(%spot: tensor<1000000xf32>, %strike: tensor<1000000xf32>, %years: tensor<1000000xf32>,
                %volatility: tensor<1000000xf32>) -> (tensor<1000000xf32>, tensor<1000000xf32>) {
  %rate = stablehlo.constant dense<0.03> : tensor<1000000xf32>
  %half = stablehlo.constant dense<0.5> : tensor<1000000xf32>
  %one = stablehlo.constant dense<1.0> : tensor<1000000xf32>
  %root_half = stablehlo.constant dense<0.70710678> : tensor<1000000xf32>

  // d1 = (log(spot / strike) + (rate + volatility^2 / 2) years) / (volatility sqrt(years)), d2 = d1 - volatility sqrt(years)
  %root = stablehlo.sqrt %years : tensor<1000000xf32>
  %spread = stablehlo.multiply %volatility, %root : tensor<1000000xf32>
  %ratio = stablehlo.divide %spot, %strike : tensor<1000000xf32>
  %distance = stablehlo.log %ratio : tensor<1000000xf32>
  %squared = stablehlo.multiply %volatility, %volatility : tensor<1000000xf32>
  %variance = stablehlo.multiply %half, %squared : tensor<1000000xf32>
  %drift = stablehlo.add %rate, %variance : tensor<1000000xf32>
  %drifted = stablehlo.multiply %drift, %years : tensor<1000000xf32>
  %sum = stablehlo.add %distance, %drifted : tensor<1000000xf32>
  %d1 = stablehlo.divide %sum, %spread : tensor<1000000xf32>
  %d2 = stablehlo.subtract %d1, %spread : tensor<1000000xf32>

  // The normal distribution: N(d) = (1 + erf(d / sqrt(2))) / 2
  %s1 = stablehlo.multiply %d1, %root_half : tensor<1000000xf32>
  %e1 = chlo.erf %s1 : tensor<1000000xf32> -> tensor<1000000xf32>
  %t1 = stablehlo.add %one, %e1 : tensor<1000000xf32>
  %n1 = stablehlo.multiply %half, %t1 : tensor<1000000xf32>
  %s2 = stablehlo.multiply %d2, %root_half : tensor<1000000xf32>
  %e2 = chlo.erf %s2 : tensor<1000000xf32> -> tensor<1000000xf32>
  %t2 = stablehlo.add %one, %e2 : tensor<1000000xf32>
  %n2 = stablehlo.multiply %half, %t2 : tensor<1000000xf32>

  // call = spot N(d1) - strike exp(-rate years) N(d2), and put = call - spot + strike exp(-rate years)
  %interest = stablehlo.multiply %rate, %years : tensor<1000000xf32>
  %negative = stablehlo.negate %interest : tensor<1000000xf32>
  %discount = stablehlo.exponential %negative : tensor<1000000xf32>
  %owed = stablehlo.multiply %strike, %discount : tensor<1000000xf32>
  %gain = stablehlo.multiply %spot, %n1 : tensor<1000000xf32>
  %cost = stablehlo.multiply %owed, %n2 : tensor<1000000xf32>
  %call = stablehlo.subtract %gain, %cost : tensor<1000000xf32>
  %less = stablehlo.subtract %call, %spot : tensor<1000000xf32>
  %put = stablehlo.add %less, %owed : tensor<1000000xf32>
  return %call, %put : tensor<1000000xf32>, tensor<1000000xf32>
}
